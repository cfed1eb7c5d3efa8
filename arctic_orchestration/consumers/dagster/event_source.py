"""What a consumer reads from Dagster: the event log and the existing dynamic partitions."""

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import dagster as dg

from arctic_orchestration.consumers.control import LogEnd
from arctic_orchestration.consumers.working_set import Existing
from arctic_orchestration.errors import (
    ArcticError,
    ConfigurationError,
    DatabaseUnavailable,
    InvalidInput,
)
from arctic_orchestration.event_log.dagster_log import DagsterLog

#: The accepted forms of an asset.
AssetLike = str | Sequence[str] | dg.AssetKey | dg.AssetsDefinition | dg.AssetSpec


@dataclass(frozen=True, kw_only=True)
class Asset:
    """The asset that is read: its key, such as ``raw/flights``, and its partitions, if known."""

    key: str
    partitions: dg.PartitionsDefinition[Any] | None


def asset_of(given: object, partitions: dg.PartitionsDefinition[Any] | None, field: str) -> Asset:
    """Returns the asset that a user means.

    Args:
        given: a key in any of its forms, or the definition of an asset.
        partitions: its partitions definition, where ``given`` does not contain it.
        field: names the consumer in messages.

    Errors:
        InvalidInput: it is no asset, or has no partitions, or these are not a partitions
            definition.
    """
    if partitions is not None and not isinstance(partitions, dg.PartitionsDefinition):
        raise InvalidInput(f"{field}.partitions_def", partitions, "a dg.PartitionsDefinition")
    field = f"{field}.asset"
    match given:
        case dg.AssetsDefinition():
            keys = sorted(given.keys)
            if len(keys) != 1:
                shown = ", ".join(key.to_user_string() for key in keys)
                raise InvalidInput(field, shown, "one asset: give the key of the one that is meant")
            return _known(keys[0], partitions or given.partitions_def, field)
        case dg.AssetSpec():
            # A spec without partitions may still belong to a partitioned asset.
            found = partitions or given.partitions_def
            return Asset(key=given.key.to_user_string(), partitions=found)
        case dg.AssetKey():
            return Asset(key=given.to_user_string(), partitions=partitions)
        case str():
            return Asset(key=given, partitions=partitions)
        case [*parts] if parts and all(isinstance(part, str) for part in parts):
            key = dg.AssetKey([str(part) for part in parts])
            return Asset(key=key.to_user_string(), partitions=partitions)
    raise InvalidInput(field, given, "an asset, or its key such as raw/flights")


def _known(key: dg.AssetKey, partitions: dg.PartitionsDefinition[Any] | None, field: str) -> Asset:
    if partitions is None:
        raise InvalidInput(field, key.to_user_string(), "an asset that is partitioned")
    return Asset(key=key.to_user_string(), partitions=partitions)


def check_instance(instance: object, field: str) -> None:
    """Checks that the value is an instance of Dagster.

    Errors:
        InvalidInput: it is not.
    """
    if not isinstance(instance, dg.DagsterInstance):
        raise InvalidInput(field, instance, "a dg.DagsterInstance")


def opened_instance() -> dg.DagsterInstance:
    """Returns the instance of ``DAGSTER_HOME``; in a run, the run's own.

    Errors:
        ConfigurationError: there is none.
    """
    try:
        return dg.DagsterInstance.get()
    except dg.DagsterError as error:
        raise ConfigurationError(
            f"Dagster's instance cannot be opened: {str(error).splitlines()[0].strip()} "
            "Set DAGSTER_HOME to the folder that holds dagster.yaml"
        ) from error


def log_of(instance: dg.DagsterInstance, assets: Collection[str]) -> DagsterLog:
    """Returns the event log of an instance, as consumers of some assets read it.

    An observation by a run is no arrival: a run that observed its own partition would have it
    redelivered forever.

    Errors:
        ConfigurationError: it is in memory, or in a storage that cannot be followed.
    """
    return DagsterLog(instance, observed_by_runs=False, arrivals_of=assets)


def end_of_log() -> LogEnd:
    """Returns the present end of the event log of the ``DAGSTER_HOME`` instance.

    Errors:
        ConfigurationError: there is no instance, or its log cannot be followed.
        DatabaseUnavailable: its storage did not answer.
    """
    with opened_instance() as instance, closing(DagsterLog(instance)) as log:
        return LogEnd(storage_id=log.storage_id, position=log.end().to_json())


def present_end() -> LogEnd | None:
    """Returns the end of the log of ``DAGSTER_HOME``; none: unavailable, and timestamps decide."""
    try:
        return end_of_log()
    except ArcticError:
        return None


def existing_in(
    instance: Callable[[], dg.DagsterInstance], partitions: dg.PartitionsDefinition[Any] | None
) -> Existing | None:
    """Returns a lookup of existing keys; none: the partitions cannot be deleted in Dagster.

    ``instance`` is called only on a lookup.
    """

    def there_are(name: str) -> set[str]:
        try:
            return set(instance().get_dynamic_partitions(name))
        except Exception as error:
            raise DatabaseUnavailable(f"Dagster's storage did not answer: {error}") from error

    match partitions:
        case dg.DynamicPartitionsDefinition() if partitions.name:
            only = partitions.name
            return Existing(only, lambda _: there_are(only))
        case dg.MultiPartitionsDefinition():
            names = {
                dimension.name: dimension.partitions_def.name
                for dimension in partitions.partitions_defs
                if isinstance(dimension.partitions_def, dg.DynamicPartitionsDefinition)
                and dimension.partitions_def.name
            }
            if not names:
                return None

            def among_all(keys: Sequence[str]) -> set[str]:
                there = {dimension: there_are(name) for dimension, name in names.items()}
                return {key for key in keys if _is_among(partitions, key, there)}

            return Existing(" | ".join(sorted(names.values())), among_all)
    return None


def _is_among(
    partitions: dg.MultiPartitionsDefinition, key: str, there: dict[str, set[str]]
) -> bool:
    try:
        parts = partitions.get_partition_key_from_str(key).keys_by_dimension
    except Exception:
        # Not a key of this definition: it was reported as such, and is delivered as such.
        return True
    return all(parts[dimension] in keys for dimension, keys in there.items())
