"""``ARCTIC_DATABASE_URL``: its parts, and its form for people, without secrets."""

import re

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput

FIELD = "ARCTIC_DATABASE_URL"
EXPECTED = "a URL of sqlite:/// or postgresql://"
_FORM = (
    f"{EXPECTED}, such as postgresql://user:password@host:5432/name; in a password @ is written "
    "%40, and : / ? likewise"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=://)")
_SECRET = re.compile(r"pass|pwd|secret|token|key", re.IGNORECASE)
_DRIVERS = {"sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg2"}


def parse(url: str) -> sa.URL:
    """Parses the URL of a state database.

    Errors:
        InvalidInput: it is not a URL, or of another database or driver. If it cannot be parsed, the
            message contains only the scheme: any part may be the password.
    """
    try:
        url.encode()
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # A port that is not a number, an unclosed bracket, bytes that are not text.
        raise InvalidInput(FIELD, _scheme_of(url), _FORM) from None
    if parsed.drivername not in _DRIVERS:
        raise InvalidInput(FIELD, shown(parsed), EXPECTED)
    if parsed.get_backend_name() == "sqlite":
        # The driver's options, such as the isolation level, are the product's own. A path may be a
        # URI with SQLite's parameters.
        options = bool(parsed.query) and "uri" not in parsed.query
        if parsed.host or parsed.username or parsed.password or options:
            expected = "sqlite:////path/to/a/file, without a host, a user or options"
            raise InvalidInput(FIELD, shown(parsed), expected)
    elif url.partition("?")[0].count("@") > 1:
        # The rest of the password would be parsed as a host, and shown.
        raise InvalidInput(FIELD, _scheme_of(url), _FORM)
    return parsed


def shown(url: sa.URL) -> str:
    """Returns the URL for people: without the password and secret parameters."""
    values = {key: "hidden" if _SECRET.search(key) else value for key, value in url.query.items()}
    user = "hidden" if re.search("[:@]", url.username or "") else url.username
    return url.set(username=user, query=values).render_as_string(hide_password=True)


def _scheme_of(url: str) -> str:
    found = _SCHEME.match(url)
    return f"{found[0]}://…" if found else "…"
