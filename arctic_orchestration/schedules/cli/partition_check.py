"""Checks whether a reported partition exists in a code location, or is a typo."""

import sqlalchemy as sa

from arctic_orchestration.console.state import readable_database
from arctic_orchestration.errors import DatabaseUnavailable, InvalidInput
from arctic_orchestration.event_log.event import EventKey
from arctic_orchestration.schedules.inventory import Inventory, assets_of, inventories
from arctic_orchestration.schedules.lookup import near
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.tables import locations, schedule_keys

_ANYWAY = " (to announce it all the same: --force)"


def check_names(asset: str, key: str) -> str | None:
    """Refuses an unknown asset, and a key that the asset cannot have.

    An asset is known if a code location of the cluster has it, or a schedule waits for it. Returns
    why nothing could be checked, or None.

    Errors:
        InvalidInput: names the nearest.
    """
    settings = Settings.from_environment()
    try:
        database = readable_database(settings)
        if database is None:
            return "there is no state database of this version"
        try:
            with database.read() as tx:
                known = inventories(tx, settings.cluster)
                waited_for = _waited_for(tx, settings.cluster, asset)
        finally:
            database.close()
    except DatabaseUnavailable as error:
        # Arrivals are written to Dagster's own log, which does not depend on the state database.
        return str(error)
    if not known:
        return f"no code location of cluster {settings.cluster} has ticked with this version"
    having = [one for one in known.values() if asset in one.assets]
    if not having and not waited_for:
        expected = f"an asset of a code location{near(asset, assets_of(known))}{_ANYWAY}"
        raise InvalidInput("ASSET", asset, expected)
    problems = [_problem(one, asset, key) for one in having]
    if problems and None not in problems:
        raise InvalidInput("KEY", key, f"{problems[0]}{_ANYWAY}")
    if all(one.assets[asset] is None for one in having):
        return f"no code location declares the partitions of {asset}"
    return None


def _problem(inventory: Inventory, asset: str, key: str) -> str | None:
    """Returns what one location expects of the key, or None."""
    partitioning = inventory.assets[asset]
    return None if partitioning is None else partitioning.problem(key)


def _waited_for(tx: sa.Connection, cluster: str, asset: str) -> bool:
    query = (
        sa.select(schedule_keys.c.schedule_id)
        .join(locations, locations.c.id == schedule_keys.c.location_id)
        .where(locations.c.cluster == cluster)
        .where(schedule_keys.c.event_key == str(EventKey.of_partition(asset)))
        .limit(1)
    )
    return tx.execute(query).first() is not None
