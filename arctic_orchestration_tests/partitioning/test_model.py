"""Maps answer what Dagster's own mapping objects answer when all windows have ended."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.partitions.utils.mapping import infer_partition_mapping
from hypothesis import assume, given, note
from hypothesis import strategies as st

from arctic_orchestration.partitioning.maps import PartitionMap, check

#: Far after everything that the tests define.
LATER = datetime(2026, 6, 1, tzinfo=UTC)
ZONES = ("UTC", "Europe/Berlin", "America/New_York")
#: Days around which clocks change in both zones, and quiet ones.
STARTS = ("2026-01-01", "2026-03-05", "2026-03-26", "2025-10-23", "2025-10-30")

Definition = dg.PartitionsDefinition[Any]


@st.composite
def windows(draw: st.DrawFn, zone: str) -> dg.TimeWindowPartitionsDefinition:
    """A definition of time windows, ended, so that Dagster can list all keys."""
    start = datetime.fromisoformat(draw(st.sampled_from(STARTS)))
    start += timedelta(days=draw(st.integers(0, 3)))
    end = start + timedelta(days=draw(st.integers(1, 12)))
    cron, pattern = draw(
        st.sampled_from(
            [
                ("0 * * * *", "%Y-%m-%d-%H:%M"),
                ("15 * * * *", "%Y-%m-%d-%H:%M"),
                ("0 */6 * * *", "%Y-%m-%d-%H:%M"),
                ("0 0 * * *", "%Y-%m-%d"),
                ("30 2 * * *", "%Y-%m-%d"),
                ("0 0 * * 1", "%Y-%m-%d"),
                ("0 0 * * 1-5", "%Y-%m-%d"),
                ("0 0 1 * *", "%Y-%m"),
            ]
        )
    )
    end_offset = draw(st.sampled_from([0, 0, 0, 1, -1]))
    exclusions = draw(st.sampled_from([None, None, None, ["0 0 * * 3"]]))
    definition = dg.TimeWindowPartitionsDefinition(
        start=start,
        end=end,
        cron_schedule=cron,
        fmt=pattern,
        timezone=zone,
        end_offset=end_offset,
        exclusions=exclusions,
    )
    # Where the definition ends before its first window does, Dagster lists a key that it has not.
    with partition_loading_context(LATER):
        first, last = (
            definition.get_first_partition_window(),
            definition.get_last_partition_window(),
        )
    assume(first is not None and last is not None and first.start <= last.start)
    return definition


regions = st.lists(
    st.sampled_from(["emea", "amer", "apac"]), min_size=1, max_size=3, unique=True
).map(dg.StaticPartitionsDefinition)


@st.composite
def multis(draw: st.DrawFn, zone: str) -> dg.MultiPartitionsDefinition:
    return dg.MultiPartitionsDefinition({"date": draw(windows(zone)), "region": draw(regions)})


@st.composite
def offsets(draw: st.DrawFn) -> dg.TimeWindowPartitionMapping:
    start = draw(st.integers(-2, 1))
    return dg.TimeWindowPartitionMapping(start, draw(st.integers(start, 2)))


@st.composite
def dependencies(
    draw: st.DrawFn,
) -> tuple[Definition, Definition, dg.PartitionMapping | None]:
    """Two definitions, and a mapping between them that Dagster accepts."""
    zone = draw(st.sampled_from(ZONES))
    mapping: dg.PartitionMapping | None
    single: Definition
    kind = draw(st.sampled_from(["windows", "windows", "static", "single", "multi", "chosen"]))
    if kind == "windows":
        mapping = draw(st.one_of(st.none(), offsets(), st.just(dg.IdentityPartitionMapping())))
        return draw(windows(zone)), draw(windows(zone)), mapping
    if kind == "static":
        upstream, target = draw(regions), draw(regions)
        names = st.sets(st.sampled_from(target.get_partition_keys()), min_size=1)
        pairs = st.dictionaries(st.sampled_from(upstream.get_partition_keys()), names)
        mapping = draw(st.one_of(st.none(), pairs.map(dg.StaticPartitionMapping)))
        return upstream, target, mapping
    if kind == "single":
        multi, single = draw(multis(zone)), draw(st.one_of(windows(zone), regions))
        if single is not None and draw(st.booleans()):
            single = multi.get_partitions_def_for_dimension(
                draw(st.sampled_from(["date", "region"]))
            )
        if isinstance(single, dg.StaticPartitionsDefinition):
            single = multi.get_partitions_def_for_dimension("region")
        either = draw(st.booleans())
        return (multi, single, None) if either else (single, multi, None)
    if kind == "multi":
        inner = {"date": dg.DimensionPartitionMapping("date", draw(offsets()))}
        if draw(st.booleans()):
            inner["region"] = dg.DimensionPartitionMapping("region", dg.IdentityPartitionMapping())
        mapping = draw(st.one_of(st.none(), st.just(dg.MultiPartitionMapping(inner))))
        return draw(multis(zone)), draw(multis(zone)), mapping
    any_kind: st.SearchStrategy[Definition] = st.one_of(windows(zone), regions, multis(zone))
    chosen: st.SearchStrategy[dg.PartitionMapping] = st.sampled_from(
        [dg.AllPartitionMapping(), dg.LastPartitionMapping()]
    )
    return draw(any_kind), draw(any_kind), draw(chosen)


def _keys(definition: Definition) -> list[str]:
    with partition_loading_context(LATER):
        return [str(key) for key in definition.get_partition_keys()]


def _downstream(
    key: str, upstream: Definition, target: Definition, mapping: dg.PartitionMapping
) -> list[str]:
    with partition_loading_context(LATER):
        subset = mapping.get_downstream_partitions_for_partitions(
            upstream.subset_with_partition_keys([key]), upstream, target
        )
        return [str(key) for key in subset.get_partition_keys()]


def _upstream(
    key: str, upstream: Definition, target: Definition, mapping: dg.PartitionMapping
) -> list[str]:
    with partition_loading_context(LATER):
        result = mapping.get_upstream_mapped_partitions_result_for_partitions(
            target.subset_with_partition_keys([key]), target, upstream
        )
        return [str(key) for key in result.partitions_subset.get_partition_keys()]


def _ordered(keys: Sequence[str], everything: list[str]) -> tuple[str, ...]:
    return tuple(sorted(keys, key=everything.index))


@given(st.data())
def test_targets_and_sources_are_those_of_dagster(data: st.DataObject) -> None:
    """Each key of the asset has the targets, and each target the sources, that Dagster names."""
    upstream, target, mapping = data.draw(dependencies())
    if check(upstream, target, mapping) is not None:
        return
    dagsters = infer_partition_mapping(mapping, target, upstream)
    keys, targets = _keys(upstream), _keys(target)
    some = data.draw(
        st.one_of(st.just(keys), st.sets(st.sampled_from(keys)).map(list)) if keys else st.just([])
    )
    partition_map = PartitionMap(upstream, target, mapping)
    answers = partition_map.targets_of(some, at=LATER)
    assert set(answers) == set(some)
    for key in some if len(some) < 60 else some[:30] + some[-30:]:
        note(key)
        expected = _ordered(_downstream(key, upstream, target, dagsters), targets)
        if answers[key] != expected:
            # Beside windows that are excluded, Dagster's two directions may differ.
            for name in {*expected, *answers[key]}:
                counts = key in _upstream(name, upstream, target, dagsters)
                assert counts == (name in answers[key])
    for key in targets[:40]:
        note(key)
        expected = _ordered(_upstream(key, upstream, target, dagsters), keys)
        assert partition_map.sources_of(key, at=LATER) == expected


@given(st.data())
def test_a_key_belongs_to_the_targets_whose_sources_have_it(data: st.DataObject) -> None:
    """Whatever is counted for a target partition arrives at it."""
    upstream, target, mapping = data.draw(dependencies())
    if check(upstream, target, mapping) is not None:
        return
    partition_map = PartitionMap(upstream, target, mapping)
    pairs = {
        (key, name)
        for key, names in partition_map.targets_of(_keys(upstream), at=LATER).items()
        for name in names
    }
    expected = {
        (key, name) for name in _keys(target) for key in partition_map.sources_of(name, at=LATER)
    }
    if pairs != expected:
        # Beside windows that are excluded, Dagster's two directions may differ.
        dagsters = infer_partition_mapping(mapping, target, upstream)
        expected -= {
            (key, name)
            for key, name in expected - pairs
            if name not in _downstream(key, upstream, target, dagsters)
        }
    assert pairs == expected
