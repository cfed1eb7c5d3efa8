"""Checks whether announced partitions exist in a code location, or are typos."""

from typing import Literal

import sqlalchemy as sa

from arctic_orchestration.event_log.event import EventKey
from arctic_orchestration.schedules.inventory import Partitioning, assets_of, inventories
from arctic_orchestration.schedules.lookup import near
from arctic_orchestration.state.tables import locations, schedule_keys


class ArrivalNames:
    """The assets and partitions of the code locations of a cluster, at one moment.

    An asset is known if a code location of the cluster has it, or a schedule waits for it.
    """

    def __init__(self, tx: sa.Connection, cluster: str) -> None:
        self._tx = tx
        self._cluster = cluster
        self._inventories = inventories(tx, cluster)
        self._partitionings: dict[str, list[Partitioning | None]] = {}
        self._waited_for: dict[str, bool] = {}
        self._keys: dict[Partitioning, frozenset[str]] = {}

    def unchecked(self, asset: str) -> str | None:
        """Returns why nothing is known of the partitions of an asset, or None."""
        if not self._inventories:
            return f"no code location of cluster {self._cluster} has ticked with this version"
        having = self._of(asset)
        if not having:
            return f"no code location declares the partitions of {asset}"
        if all(one is None for one in having):
            return f"the partitions of {asset} are dynamic in the code, or it has none"
        return None

    def problem(self, asset: str, key: str) -> tuple[Literal["asset", "partition"], str] | None:
        """Returns what is unknown, and what was expected in its place; None: nothing."""
        if not self._inventories:
            return None
        having = self._of(asset)
        if not having and not self._is_waited_for(asset):
            known = assets_of(self._inventories)
            return "asset", f"an asset of a code location{near(asset, known)}"
        problems = [self._key_problem(one, key) for one in having]
        if problems and None not in problems:
            return "partition", str(problems[0])
        return None

    def _of(self, asset: str) -> list[Partitioning | None]:
        if asset not in self._partitionings:
            having = [one for one in self._inventories.values() if asset in one.assets]
            self._partitionings[asset] = [one.assets[asset] for one in having]
        return self._partitionings[asset]

    def _key_problem(self, partitioning: Partitioning | None, key: str) -> str | None:
        """Returns what one location expects of the key, or None."""
        if partitioning is None:
            return None
        if partitioning not in self._keys:
            self._keys[partitioning] = frozenset(partitioning.keys or ())
        return None if key in self._keys[partitioning] else partitioning.problem(key)

    def _is_waited_for(self, asset: str) -> bool:
        if asset not in self._waited_for:
            query = (
                sa.select(schedule_keys.c.schedule_id)
                .join(locations, locations.c.id == schedule_keys.c.location_id)
                .where(locations.c.cluster == self._cluster)
                .where(schedule_keys.c.event_key == str(EventKey.of_partition(asset)))
                .limit(1)
            )
            self._waited_for[asset] = self._tx.execute(query).first() is not None
        return self._waited_for[asset]
