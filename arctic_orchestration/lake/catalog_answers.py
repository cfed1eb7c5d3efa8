"""What a catalog answers: which errors mean that it is away, and how often it is asked again."""

from collections.abc import Callable
from time import sleep
from typing import TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    ForbiddenError,
    OAuthError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
)
from sqlalchemy.exc import DBAPIError

from arctic_orchestration.errors import CatalogUnavailable

#: How often a silent catalog is retried, in all about three seconds.
TRIES = 5
_FIRST_WAIT_SECONDS = 0.2
_DOWN = (OSError, DBAPIError, ServiceUnavailableError, ServerError, TooManyRequestsError)
#: The modules with the errors of other catalogs' clients: Glue's and Hive's.
_CLIENTS = ("botocore.", "thrift.", "hive_metastore.")
#: Retries do not restore a missing file of the table.
NOT_ABOUT_THE_CATALOG = (FileNotFoundError, PermissionError)

#: The catalog's answers that say that it did not make a commit.
REFUSED_COMMIT = (
    TooManyRequestsError,
    UnauthorizedError,
    AuthorizationExpiredError,
    ForbiddenError,
    BadRequestError,
)
#: Its answers to credentials that are wrong or have expired.
_UNAUTHORIZED = (UnauthorizedError, AuthorizationExpiredError, ForbiddenError, OAuthError)

_T = TypeVar("_T")


def answered(query: Callable[[], _T], what: str) -> _T:
    """Returns the catalog's answer; retries when it does not answer.

    Errors:
        CatalogUnavailable: it never answered; names ``what`` and the last reason.
    """
    for attempt in range(1, TRIES + 1):
        try:
            return query()
        except NOT_ABOUT_THE_CATALOG:
            raise
        except _UNAUTHORIZED as error:
            raise CatalogUnavailable(
                f"{what}: the catalog refuses the credentials: {error}. Check credential and token "
                "in its properties"
            ) from error
        except Exception as error:
            if not (isinstance(error, _DOWN) or type(error).__module__.startswith(_CLIENTS)):
                raise
            if attempt == TRIES:
                raise CatalogUnavailable(
                    f"{what}: the catalog did not answer, tried {TRIES} times: {error}"
                ) from error
            sleep(wait_seconds(attempt))
    raise AssertionError("unreachable")


def is_away(catalog: Catalog) -> bool:
    """Returns whether a catalog does not answer, asked once for its namespaces."""
    try:
        catalog.list_namespaces()
    except Exception:
        return True
    return False


def wait_seconds(attempt: int) -> float:
    """Returns how long to wait for a silent catalog after an attempt, the first being 1."""
    return _FIRST_WAIT_SECONDS * float(2 ** (attempt - 1))
