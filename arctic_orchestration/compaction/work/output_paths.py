"""The output directories of attempts: one for each, below the table."""

from pyiceberg.table import Table

from arctic_orchestration.lake.upkeep.listing import Store


def directory_of(table: Table, name: str) -> str:
    """Returns the directory of an attempt, in the form of the table's own file paths.

    Args:
        table: its present state.
        name: the last component of the path, unique to the attempt.
    """
    return table.location_provider().new_data_location(name)


def remove_outputs(table: Table, directory: str) -> None:
    """Removes the directory of an attempt with its contents; a missing one is no error.

    Errors:
        LakeError: the table's files cannot be listed, or one cannot be removed.
    """
    Store(table.io, directory).remove_all()
