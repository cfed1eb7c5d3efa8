"""Files that are to take the place of others, and what became of it, as values."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.lake.file_groups import FileGroup


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """Files of a table, and those that hold the same rows and are to take their place."""

    #: no two replacements of a table ever have the same
    id: str
    group: FileGroup
    #: paths of the new files; none, when all rows were deleted
    outputs: tuple[str, ...]
    #: so many rows of the group's files the deletes removed
    rows_deleted: int
    #: the order that the rows of the outputs have
    sort_order_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """What became of replacements; each is named exactly once."""

    #: None: nothing was committed
    snapshot_id: int | None
    committed: tuple[str, ...]
    #: other writers were in the way; planning again may succeed
    conflicts: dict[str, str]
    #: the outputs are not what they must be
    wrong: dict[str, str]
    #: in the table before, with the snapshot that added them
    already: dict[str, int]
    #: A file, or an older snapshot, that had to be looked at could not be read. Nothing was decided
    #: of these: they may be in the table, and trying again may succeed.
    unreadable: dict[str, str] = field(default_factory=dict)


def require_names(replacements: Sequence[Replacement]) -> None:
    """Refuses replacements that could not be told apart.

    Errors:
        InvalidInput: an id is empty, is there twice or holds a comma, or a group has no files.
    """
    seen: set[str] = set()
    for number, each in enumerate(replacements):
        if not each.id or "," in each.id:
            raise InvalidInput(f"replacements[{number}].id", each.id, "a name without commas")
        if each.id in seen:
            raise InvalidInput(f"replacements[{number}].id", each.id, "each name once")
        if not each.group.files:
            raise InvalidInput(f"replacements[{number}].group.files", (), "at least one file")
        seen.add(each.id)
