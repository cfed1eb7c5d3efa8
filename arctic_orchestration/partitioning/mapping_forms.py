"""Partition mappings as YAML and JSON, both directions.

==============================================  ==================================================
``identity``, ``all``, ``last``                 the same key, every key, the last key
``{time_window: {start_offset: -1}}``           windows that overlap, moved by windows of the target
``{dimension: date}``                           one dimension of a multi-partitioned side
``{static: {emea: eu, amer: [us, ca]}}``        the target keys of each upstream key
``{specific: [a, b]}``                          these upstream keys, for every target
``{multi: {date: {dimension: day, …}, …}}``     upstream dimensions onto dimensions of the target
==============================================  ==================================================
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from arctic_orchestration.dagster_internals import disable_dagster_warnings
from arctic_orchestration.partitioning.form_values import (
    made,
    mapping_at,
    number_at,
    only_key,
    refuse,
    text_at,
    texts_at,
)

_WORDS: dict[str, type[dg.PartitionMapping]] = {
    "identity": dg.IdentityPartitionMapping,
    "all": dg.AllPartitionMapping,
    "last": dg.LastPartitionMapping,
}
_KINDS = ("time_window", "dimension", "static", "specific", "multi")
_OFFSETS = ("start_offset", "end_offset")
_ALLOW = "allow_nonexistent_upstream_partitions"


def mapping_of(form: object, *, field: str) -> dg.PartitionMapping:
    """Creates the partition mapping of a form.

    Errors:
        InvalidDefinition: names the path under ``field``, the value and what was expected.
    """
    if isinstance(form, str):
        if form not in _WORDS:
            refuse(
                field, form, f"{', '.join(_WORDS)}, or a mapping with one of {', '.join(_KINDS)}"
            )
        return _WORDS[form]()
    kind, body = only_key(form, field, _KINDS)
    field = f"{field}.{kind}"
    made_of: dg.PartitionMapping
    if kind == "dimension":
        name = None if body is None else text_at(body, field)
        made_of = made(field, body, dg.MultiToSingleDimensionPartitionMapping, name)
    elif kind == "specific":
        made_of = dg.SpecificPartitionsPartitionMapping(texts_at(body, field))
    elif kind == "static":
        made_of = dg.StaticPartitionMapping(_targets(mapping_at(body, field), field))
    elif kind == "multi":
        dimensions = {
            text_at(name, field): _dimension(inner, f"{field}.{name}")
            for name, inner in mapping_at(body, field).items()
        }
        made_of = made(field, body, dg.MultiPartitionMapping, dimensions)
    else:
        given = _fields(body, field, (*_OFFSETS, _ALLOW))
        for name in given:
            if name in _OFFSETS:
                number_at(given[name], f"{field}.{name}")
            elif not isinstance(given[name], bool):
                refuse(f"{field}.{name}", given[name], "true or false")
        made_of = made(field, body, dg.TimeWindowPartitionMapping, **given)
    return made_of


def form_of_mapping(mapping: dg.PartitionMapping) -> Any | None:
    """Returns the form for which :func:`mapping_of` makes an equal mapping; None: a custom one."""
    for word, kind in _WORDS.items():
        if type(mapping) is kind:
            return word
    # The classes are named tuples, and those with the same fields are equal: their types count.
    if type(mapping) is dg.TimeWindowPartitionMapping:
        values = {name: getattr(mapping, name) for name in (*_OFFSETS, _ALLOW)}
        return {"time_window": {name: value for name, value in values.items() if value}}
    if type(mapping) is dg.MultiToSingleDimensionPartitionMapping:
        return {"dimension": mapping.partition_dimension_name}
    if type(mapping) is dg.SpecificPartitionsPartitionMapping:
        return {"specific": list(mapping.partition_keys)}
    if type(mapping) is dg.StaticPartitionMapping:
        keys = mapping.downstream_partition_keys_by_upstream_partition_key
        return {
            "static": {
                key: names if isinstance(names, str) else sorted(names)
                for key, names in keys.items()
            }
        }
    if type(mapping) is dg.MultiPartitionMapping:
        forms = {
            name: (inner.dimension_name, form_of_mapping(inner.partition_mapping))
            for name, inner in mapping.downstream_mappings_by_upstream_dimension.items()
        }
        if any(form is None for _, form in forms.values()):
            return None
        return {
            "multi": {
                name: {"dimension": other, "mapping": form} for name, (other, form) in forms.items()
            }
        }
    return None


def _dimension(form: object, field: str) -> dg.DimensionPartitionMapping:
    given = _fields(form, field, ("dimension", "mapping"))
    inner = mapping_of(given.get("mapping", "identity"), field=f"{field}.mapping")
    with disable_dagster_warnings():
        return dg.DimensionPartitionMapping(
            text_at(given.get("dimension"), f"{field}.dimension"), inner
        )


def _targets(body: Mapping[Any, Any], field: str) -> dict[str, str | list[str]]:
    return {
        text_at(key, field): names
        if isinstance(names, str) and names
        else texts_at(names, f"{field}.{key}")
        for key, names in body.items()
    }


def _fields(value: object, field: str, names: tuple[str, ...]) -> dict[str, Any]:
    given = mapping_at(value, field)
    for name in given:
        if name not in names:
            refuse(f"{field}.{name}", given[name], f"one of {', '.join(names)}")
    return dict(given)
