"""The difference between the stored schedules and the wanted ones."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from arctic_orchestration.schedules.lookup import ScheduleRow
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.stored_schedule import Origin, StoredSchedule


class _Absent:
    """Marks a side without a value: the field has its default, or the item does not exist."""

    def __repr__(self) -> str:
        return "(none)"


ABSENT: Final = _Absent()


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldChange:
    """One field that differs, by its path in the YAML form."""

    path: str
    #: :data:`ABSENT` if the form lacks it
    old: Any
    new: Any

    def to_json(self) -> dict[str, Any]:
        """``path``, ``old`` and ``new``; an absent side is left out."""
        form = {"path": self.path, "old": self.old, "new": self.new}
        return {key: value for key, value in form.items() if value is not ABSENT}


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleChange:
    """A schedule that would get a new version."""

    name: str
    #: the stored version
    version: int
    origin: Origin
    fields: tuple[FieldChange, ...]
    #: why the stored one cannot be read: it is created again, and its jobs are deleted
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form."""
        return {
            "name": self.name,
            "version": self.version,
            "origin": self.origin.value,
            "fields": [field.to_json() for field in self.fields],
            "problem": self.problem,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The changes that turn the stored schedules into the wanted ones, sorted by name."""

    created: tuple[Schedule, ...]
    updated: tuple[ScheduleChange, ...]
    deleted: tuple[str, ...]
    unchanged: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there are no changes."""
        return not (self.created or self.updated or self.deleted)

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form."""
        return {
            "created": [schedule.to_form() for schedule in self.created],
            "updated": [change.to_json() for change in self.updated],
            "deleted": list(self.deleted),
            "unchanged": list(self.unchanged),
        }


def differences(
    stored: Sequence[StoredSchedule],
    wanted: Sequence[Schedule],
    *,
    unreadable: Sequence[ScheduleRow] = (),
    prune: bool = False,
    kept: Collection[str] = (),
) -> Difference:
    """Compares schedules by name.

    Args:
        stored: the schedules of a location.
        wanted: the schedules it is to have; names are unique.
        unreadable: its schedules that this version of the package cannot read.
        prune: whether to delete schedules that were created manually and are not wanted. Declared
            schedules are never deleted.
        kept: names that are not pruned.
    """
    have = {old.name: old for old in stored}
    broken = {row.name: row for row in unreadable}
    created: list[Schedule] = []
    updated: list[ScheduleChange] = []
    unchanged: list[str] = []
    for schedule in sorted(wanted, key=lambda schedule: schedule.name):
        old, row = have.get(schedule.name), broken.get(schedule.name)
        if row is not None:
            updated.append(
                ScheduleChange(
                    name=row.name,
                    version=row.version,
                    origin=row.origin,
                    fields=(),
                    problem=row.problem or "this version of the package cannot read it",
                )
            )
        elif old is None:
            created.append(schedule)
        elif fields := changes(old.schedule.to_form(), schedule.to_form()):
            updated.append(
                ScheduleChange(name=old.name, version=old.version, origin=old.origin, fields=fields)
            )
        else:
            unchanged.append(schedule.name)
    names = {schedule.name for schedule in wanted}
    manual = [old.name for old in stored if old.origin is Origin.API]
    manual += [row.name for row in unreadable if row.origin is Origin.API]
    gone = [name for name in manual if prune and name not in {*names, *kept}]
    return Difference(
        created=tuple(created),
        updated=tuple(updated),
        deleted=tuple(sorted(gone)),
        unchanged=tuple(unchanged),
    )


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """Returns the fields that differ between two forms of a schedule."""
    return tuple(_changes("", old, new))


def _changes(path: str, old: Any, new: Any) -> Iterator[FieldChange]:
    if isinstance(old, Mapping) and isinstance(new, Mapping) and not _other_kind(old, new):
        for key in [*old, *(key for key in new if key not in old)]:
            step = f"{path}.{key}" if path else str(key)
            yield from _changes(step, old.get(key, ABSENT), new.get(key, ABSENT))
    elif isinstance(old, list) and isinstance(new, list):
        for place in range(max(len(old), len(new))):
            before = old[place] if place < len(old) else ABSENT
            after = new[place] if place < len(new) else ABSENT
            yield from _changes(f"{path}[{place}]", before, after)
    elif old != new or type(old) is not type(new):
        # In Python 1 equals true and 1.0; for code that reads a property they differ.
        yield FieldChange(path=path, old=old, new=new)


def _other_kind(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Returns whether two triggers or constraints, as ``{kind: fields}``, share nothing."""
    return len(old) == len(new) == 1 and old.keys() != new.keys()
