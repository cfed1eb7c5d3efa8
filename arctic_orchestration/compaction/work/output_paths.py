"""Where the merges of attempts are written: each in a directory of its own, below the table."""

from pyiceberg.table import Table

from arctic_orchestration.lake.upkeep.listing import Store


def directory_of(table: Table, name: str) -> str:
    """The directory of an attempt, in the form that the table's own file paths have.

    Args:
        table: as it is now.
        name: the last part of the path, of no other attempt.
    """
    return table.location_provider().new_data_location(name)


def remove_outputs(table: Table, directory: str) -> None:
    """Removes the directory of an attempt with all that is in it; one that is gone is no error.

    Errors:
        LakeError: the table's files cannot be listed, or one cannot be removed.
    """
    Store(table.io, directory).remove_all()
