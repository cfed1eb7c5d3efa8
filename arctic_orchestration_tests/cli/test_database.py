"""``arctic db upgrade``."""

import json
from collections.abc import Callable

import pytest

from arctic_orchestration.database.engine import SCHEMA_REVISION, Database
from arctic_orchestration_tests.cli.conftest import Outcome


def test_an_upgrade_makes_the_schema_and_says_from_what(
    empty_url: str, arctic: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time there is nothing to do."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", empty_url)
    first = arctic("db", "upgrade")
    assert (first.code, first.err) == (0, "")
    assert first.out.endswith(f": empty → {SCHEMA_REVISION}\n")
    Database.open(empty_url).close()
    again = arctic("db", "upgrade")
    assert again.code == 0
    assert again.out.endswith(f" is at revision {SCHEMA_REVISION} already\n")
    document = json.loads(arctic("db", "upgrade", "--json").out)
    assert (document["before"], document["revision"]) == (SCHEMA_REVISION, SCHEMA_REVISION)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://user:secret@host/db", "expected a URL of sqlite:/// or postgresql://"),
        ("postgresql://user:secret@127.0.0.1:1/db", "The state database did not answer"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_message(
    url: str, message: str, arctic: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, and no password in it."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", url)
    said = arctic("db", "upgrade")
    assert said.code == 2
    assert message in said.err.replace("\n", " ")
    assert "secret" not in said.err
    assert "Traceback" not in said.err
