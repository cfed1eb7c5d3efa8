"""The inventory of a code location: the jobs, assets and partitions that schedules may name.

The dispatcher stores it with its first tick, so that commands, which load no code, can detect
typos. A location whose dispatcher has not ticked with this version has no inventory, and its names
are not checked.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from arctic_orchestration.schedules.location import Location, code_location
from arctic_orchestration.schedules.lookup import near
from arctic_orchestration.schedules.schedule import Target
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import location_inventories, locations

if TYPE_CHECKING:
    from arctic_orchestration.partitioning.key_space import KeySpace

#: the version of the JSON form; other versions are not read
_FORM = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Partitioning:
    """The partition keys that an asset can have, as far as known without loading the code."""

    #: all keys; None: not listed
    keys: tuple[str, ...] | None = None
    #: the ``%Y-%m-%d`` format of keys that are moments
    format: str | None = None
    #: the definition as JSON, in the form of :mod:`arctic_orchestration.partitioning.forms`;
    #: None: it has no such form, or all keys are listed
    form: str | None = None

    def problem(self, key: str) -> str | None:
        """Returns what was expected instead of an impossible key; None: the key is possible."""
        if self.keys is not None and key not in self.keys:
            return "one of its partitions" + near(key, self.keys)
        if self.format is not None and not _is_moment(key, self.format):
            return f"a moment written as {self.format}"
        space = self.key_space()
        if self.form is None or space is None or space.has(key):
            return None
        from arctic_orchestration.partitioning.checks import described
        from arctic_orchestration.partitioning.near_keys import nearest

        found = nearest(space, key)
        end = f"; did you mean {found}?" if found is not None else ""
        return f"one of its partitions ({described(space.definition)}){end}"

    def key_space(self) -> "KeySpace | None":
        """Returns the keys of the definition, or None if it is unknown. Imports Dagster."""
        form = {"static": list(self.keys)} if self.keys is not None else None
        if form is None and self.form is not None:
            form = json.loads(self.form)
        return None if form is None else _key_space(json.dumps(form))


@lru_cache(maxsize=256)
def _key_space(form: str) -> "KeySpace":
    """Returns the keys of a definition; thousands of arrivals are checked at once."""
    from arctic_orchestration.partitioning.forms import definition_of
    from arctic_orchestration.partitioning.key_space import KeySpace, store_of

    return KeySpace(definition_of(json.loads(form), field="partitions"), store_of(None))


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory:
    """The contents of a code location."""

    jobs: frozenset[str] = frozenset()
    #: all assets and their partitions; None: unpartitioned, or keys are not known in advance
    assets: Mapping[str, Partitioning | None] = field(default_factory=dict)
    #: the assets that a run can make
    executable: frozenset[str] = frozenset()
    #: the assets that each job makes; jobs that make none are left out
    job_assets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: the partitions of each job; unpartitioned jobs are left out
    job_partitions: Mapping[str, Partitioning] = field(default_factory=dict)
    #: the mappings that assets declare on their dependencies, as JSON; ``null``: of a
    #: user-defined class
    mappings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: the sensors that are sources; None: unknown
    sources: frozenset[str] | None = None
    #: the names of the checks of each asset that has some, sorted; None: unknown
    checks: Mapping[str, tuple[str, ...]] | None = None
    #: the assets with a freshness policy; None: unknown
    policies: frozenset[str] | None = None
    #: Dagster's name of the location, as in events that others see; not stored here; None: its own
    known_as: str | None = None

    def partitioning_of(self, target: Target) -> Partitioning | None:
        """Returns the partitions of a target; None: it has none, several kinds, or unknown ones."""
        if target.job is not None and target.job in self.job_partitions:
            return self.job_partitions[target.job]
        names = target.assets if target.job is None else self.job_assets.get(target.job, ())
        found = {self.assets.get(name) for name in names} - {None}
        return found.pop() if len(found) == 1 else None

    def to_json(self) -> str:
        """Returns a compact text for :meth:`from_json`. Equal inventories have equal texts."""
        partitionings: dict[Partitioning, int] = {}
        for found in (*self.assets.values(), *self.job_partitions.values()):
            if found is not None:
                partitionings.setdefault(found, len(partitionings))
        assets = {
            name: [int(name in self.executable), *([partitionings[of]] if of is not None else [])]
            for name, of in sorted(self.assets.items())
        }
        numbers = {name: number for number, name in enumerate(assets)}
        form = {
            "form": _FORM,
            "jobs": sorted(self.jobs),
            "made": {
                job: [numbers[name] for name in made]
                for job, made in sorted(self.job_assets.items())
            },
            "assets": assets,
            "partitions": [[one.keys, one.format, one.form] for one in partitionings],
            "jobs_by_partition": {
                job: partitionings[of] for job, of in sorted(self.job_partitions.items())
            },
            "mappings": self.mappings,
            **({"sources": sorted(self.sources)} if self.sources is not None else {}),
            **({"checks": self.checks} if self.checks is not None else {}),
            **({"policies": sorted(self.policies)} if self.policies is not None else {}),
        }
        return json.dumps(form, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Inventory | None":
        """Reads the JSON text; None: another version of the package wrote it."""
        form: dict[str, Any] = json.loads(text)
        if form.get("form") != _FORM:
            return None
        partitionings = [
            # Earlier versions of the package wrote no form.
            Partitioning(
                keys=None if keys is None else tuple(keys),
                format=written,
                form=given[0] if given else None,
            )
            for keys, written, *given in form["partitions"]
        ]
        names = list(form["assets"])
        return cls(
            jobs=frozenset(form["jobs"]),
            # Earlier versions of the package did not write it.
            job_assets={
                job: tuple(names[number] for number in made)
                for job, made in form.get("made", {}).items()
            },
            job_partitions={
                job: partitionings[number]
                for job, number in form.get("jobs_by_partition", {}).items()
            },
            assets={
                name: partitionings[of[0]] if of else None
                for name, (_, *of) in form["assets"].items()
            },
            executable=frozenset(name for name, (runs, *_) in form["assets"].items() if runs),
            mappings=form.get("mappings", {}),
            sources=frozenset(form["sources"]) if "sources" in form else None,
            checks={asset: tuple(names) for asset, names in form["checks"].items()}
            if "checks" in form
            else None,
            policies=frozenset(form["policies"]) if "policies" in form else None,
        )


def store(tx: sa.Connection, location: Location, inventory: Inventory, now: datetime) -> None:
    """Replaces the stored inventory of a locked location."""
    new = dialect.insert(tx, location_inventories).values(
        location_id=location.id, inventory=inventory.to_json(), at=now
    )
    changed = {"inventory": new.excluded.inventory, "at": new.excluded.at}
    tx.execute(new.on_conflict_do_update(index_elements=["location_id"], set_=changed))


def inventories(tx: sa.Connection, cluster: str) -> dict[str, Inventory]:
    """Returns the inventories of a cluster by location name; locations without one are left out."""
    query = (
        sa.select(locations.c.name, locations.c.owner, location_inventories.c.inventory)
        .join(locations, locations.c.id == location_inventories.c.location_id)
        .where(locations.c.cluster == cluster)
    )
    read = [(row, Inventory.from_json(row.inventory)) for row in tx.execute(query)]
    return {
        row.name: replace(inventory, known_as=code_location(row.owner))
        for row, inventory in read
        if inventory is not None
    }


def job_assets(tx: sa.Connection, location: Location) -> Mapping[str, tuple[str, ...]]:
    """Returns the assets that each job of a location makes, according to its inventory."""
    known = inventories(tx, location.cluster).get(location.name)
    return known.job_assets if known is not None else {}


def assets_of(known: Mapping[str, Inventory]) -> Sequence[str]:
    """Returns the assets of several locations, by name."""
    return sorted({asset for inventory in known.values() for asset in inventory.assets})


def _is_moment(key: str, written: str) -> bool:
    try:
        # Compared in written form; the zone makes no difference.
        return datetime.strptime(key, written).replace(tzinfo=UTC).strftime(written) == key
    except ValueError:
        return False
