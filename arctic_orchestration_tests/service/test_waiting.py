"""``/waiting`` and ``/why-not``: what waits over all features, over REST."""

import base64

import pytest

from arctic_orchestration.state.database import Database
from arctic_orchestration.waiting.reader import waiting, waiting_by_cause
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token
from arctic_orchestration_tests.waiting.planted import NOW, ODD, plant


@pytest.fixture
def planted(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Something waits for each planted cause."""
    plant(database)
    for module in ("waiting", "access", "service"):
        monkeypatch.setattr(
            f"arctic_orchestration.service.{module}.utc_now", lambda: NOW, raising=False
        )
    return database


def test_causes_are_those_of_the_command(api: MakeApi, planted: Database) -> None:
    """Word for word, with the counts."""
    found = api().get("/waiting?group_by=cause").json()
    with planted.read() as tx:
        expected = waiting_by_cause(tx, "default", NOW).to_json()
    assert found == {**expected, "next_cursor": None}
    assert {"window", "concurrency:group:spark", "trigger", "suspended", "launch"} <= {
        group["cause"] for group in found["groups"]
    }


def test_pages_have_each_wait_once(api: MakeApi, planted: Database) -> None:
    """Also one with a name that is markup and moves a cursor: JSON shows it as it is."""
    client, seen, cursor = api(), [], ""
    while cursor is not None:
        page = client.get(f"/waiting?limit=3&cursor={cursor}" if cursor else "/waiting?limit=3")
        assert page.status_code == 200, page.text
        seen += page.json()["waits"]
        cursor = page.json()["next_cursor"]
    with planted.read() as tx:
        expected = waiting(tx, "default", NOW, limit=1_000).to_json()["waits"]
    assert seen == expected
    assert any(ODD in wait["name"] for wait in seen)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("kind=sloth", "kind"),
        ("group_by=mood", "group_by"),
        ("limit=0", "limit"),
        ("cursor=%22", "cursor"),
        ("color=blue", "color"),
    ],
)
def test_a_bad_filter_is_refused_by_name(
    api: MakeApi, database: Database, query: str, field: str
) -> None:
    answer = api().get(f"/waiting?{query}")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)


def test_a_token_of_one_location_sees_what_waits_there(api: MakeApi, planted: Database) -> None:
    """It has to name the location; what belongs to none is not shown to it."""
    client = api(token=token(planted, "waiting:read@location=here"))
    assert client.get("/waiting").status_code == 403
    assert client.get("/waiting?location=there").status_code == 403
    waits = client.get("/waiting?location=here").json()["waits"]
    assert {wait["location"] for wait in waits} == {"here"}


def test_why_not_names_the_window(api: MakeApi, planted: Database) -> None:
    """As the command does; a moment to come and an unknown schedule are refused."""
    client = api()
    at = "2026-01-01T00:00:30Z"
    found = client.get(f"/why-not?schedule=at_night&at={at}").json()
    assert (found["location"], found["cause"]) == ("here", "window")
    refused = client.get("/why-not?schedule=at_night&at=2031-01-01T00:00:00Z")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "at")
    assert client.get(f"/why-not?schedule=nowhere&at={at}").status_code == 404


def test_a_moment_is_refused_for_what_is_wrong_with_it(api: MakeApi, planted: Database) -> None:
    """Its form, its year, or that it has not come; the first of 1970 is taken."""
    client, address = api(), "/why-not?schedule=at_night&at="
    for at, expected in (
        ("2026-01-01", "a moment with its zone, such as 2026-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00Z", "a moment in the years 1970 to 9000"),
        ("9999-12-31T00:00:00Z", "a moment in the years 1970 to 9000"),
    ):
        assert client.get(address + at).json()["errors"][0]["expected"] == expected
    assert client.get(f"{address}1970-01-01T00:00:00Z").status_code == 200


def test_an_empty_location_is_no_way_around_a_limit(api: MakeApi, planted: Database) -> None:
    """A glob that matches the empty text admits no more than others."""
    client = api(token=token(planted, "waiting:read@location=*"))
    assert client.get("/waiting?location=").status_code == 403


@pytest.mark.parametrize(
    "document",
    [
        '["0001-01-01T00:00:00+23:00", 0, "a"]',
        '["2026-01-01T00:00:00Z", 0, "\\udc80"]',
        f'["2026-01-01T00:00:00Z", 0, {2**70}]',
    ],
)
def test_a_forged_cursor_is_refused(api: MakeApi, database: Database, document: str) -> None:
    """What no database can compare; else each feature would fail, and nothing would wait."""
    cursor = base64.urlsafe_b64encode(document.encode()).decode()
    assert api().get(f"/waiting?cursor={cursor}").status_code == 422
