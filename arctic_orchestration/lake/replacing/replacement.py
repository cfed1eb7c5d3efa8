"""The replacement of files by others, and its result, as values."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.lake.file_groups import FileGroup


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """Files of a table, and the files with the same rows that are to replace them."""

    #: unique among the replacements of a table
    id: str
    group: FileGroup
    #: paths of the new files; none, when all rows were deleted
    outputs: tuple[str, ...]
    #: how many rows of the group's files the deletes removed
    rows_deleted: int
    #: the order of the rows in the outputs
    sort_order_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """The results of replacements; each is named exactly once."""

    #: None: nothing was committed
    snapshot_id: int | None
    committed: tuple[str, ...]
    #: other writers were in conflict; planning again may succeed
    conflicts: dict[str, str]
    #: the outputs are invalid
    wrong: dict[str, str]
    #: already in the table, with the snapshot that added them
    already: dict[str, int]
    #: A needed file, or an older snapshot, could not be read. These are undecided: they may be in
    #: the table, and a retry may succeed.
    unreadable: dict[str, str] = field(default_factory=dict)


def require_names(replacements: Sequence[Replacement]) -> None:
    """Refuses replacements that could not be distinguished.

    Errors:
        InvalidInput: an id is empty, repeated or contains a comma, or a group has no files.
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
