"""``/tokens``: created once, listed and revoked over REST, by administrators alone."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.clock import utc_now
from arctic_orchestration.service import tokens
from arctic_orchestration.service.scopes import parse_scopes
from arctic_orchestration.state import audit
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.cli.conftest import Outcome, arctic
from arctic_orchestration_tests.compaction.stored import waits_for_lock
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import ANN, token
from arctic_orchestration_tests.service.test_problems import problem

__all__ = ["arctic"]

FORM = {"name": "ci", "scopes": ["schedules:write@location=lake", "jobs:read"], "expires": "90d"}


def test_a_token_is_shown_once_and_revoked(api: MakeApi, database: Database) -> None:
    """It works until then; its name is never given again, and loopback is closed."""
    made = api().post("/tokens", json=FORM, headers={"X-Request-Id": "r"})
    assert made.status_code == 201, made.text
    text = made.json()["token"]
    assert made.json()["scopes"] == FORM["scopes"]
    assert made.headers["cache-control"] == "no-store"
    problem(api().get("/tokens"), 401)
    ci = api(token=text)
    assert ci.get("/jobs").status_code == 200
    admin = api(token=token(database, "*:write", name="admin"))
    listed = {one["name"]: one for one in admin.get("/tokens").json()["tokens"]}
    assert sorted(listed) == ["admin", "ci"]
    assert (listed["ci"]["status"], listed["ci"]["created_by"]) == ("active", "loopback")
    assert "token" not in listed["ci"]
    problem(admin.post("/tokens", json=FORM), 409)
    tag = {"If-Match": admin.get("/tokens/ci").headers["ETag"]}
    assert admin.post("/tokens/ci/revoke", headers=tag).json()["status"] == "revoked"
    problem(ci.get("/jobs"), 401)
    problem(admin.post("/tokens/ci/revoke", headers=tag), 412)
    problem(admin.post("/tokens/ci/revoke"), 409)
    problem(admin.post("/tokens", json=FORM), 409)
    problem(admin.post("/tokens/nobody/revoke"), 404)
    with database.read() as tx:
        records = list(reversed(audit.records(tx, feature="tokens", subject="ci")))
    assert [(one.action, one.actor.name) for one in records] == [
        ("create", "loopback"),
        ("revoke", "admin"),
    ]
    assert records[0].actor.request_id == "r"
    assert text.split("_", 2)[2] not in str(records)


def test_a_host_whose_clock_is_behind_takes_no_expired_token(
    api: MakeApi,
    database: Database,
    arctic: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The database's clock has set its end."""
    for module in ("service.service", "service.cli.tokens"):
        name = f"arctic_orchestration.{module}.utc_now"
        monkeypatch.setattr(name, lambda: utc_now() - timedelta(hours=2), raising=False)
    text = token(database, "*:read", lifetime=timedelta(0))
    problem(api(token=text).get("/jobs"), 401)
    (listed,) = json.loads(arctic("tokens", "list", "--json").out)["tokens"]
    assert listed["status"] == "expired"


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_of_two_at_once_one_creates_or_revokes_a_token(api: MakeApi, database: Database) -> None:
    """The other one is refused, as one that comes later is."""
    client = api(token=token(database, "*:write", name="admin"))
    changes: list[tuple[Callable[[sa.Connection], object], str, Any]] = [
        (lambda tx: tokens.create(tx, ANN, "ci", parse_scopes(["*:read"])), "/tokens", FORM),
        (lambda tx: tokens.revoke(tx, ANN, "ci"), "/tokens/ci/revoke", None),
    ]
    for change, path, body in changes:
        with ThreadPoolExecutor() as threads, database.begin() as tx:
            change(tx)
            other = threads.submit(client.post, path, json=body)
            until(lambda: waits_for_lock(database), "the other one waits")
            tx.commit()
            problem(other.result(), 409)
    with database.read() as tx:
        assert len(audit.records(tx, feature="tokens", subject="ci")) == 2


@pytest.mark.parametrize(
    "scope",
    ["*:read", "*:write@location=lake", "*:write@schedule=*", "audit:write", "schedules:write"],
)
@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_only_an_administrator_reaches_tokens(api: MakeApi, database: Database, scope: str) -> None:
    """A limited one might give away more than it has; who reads all needs no names of tokens."""
    client = api(token=token(database, scope))
    for answer in (
        client.get("/tokens"),
        client.get("/tokens/t"),
        client.post("/tokens", json=FORM),
        client.post("/tokens/t/revoke"),
    ):
        problem(answer, 403)
    with database.read() as tx:
        assert [one.subject for one in audit.records(tx, feature="tokens")] == ["t"]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_bad_token_is_refused_by_name(api: MakeApi, database: Database) -> None:
    """Field, value and expectation; nothing is created, so loopback stays open."""
    bodies: list[tuple[dict[str, Any], str]] = [
        ({}, "name"),
        ({**FORM, "name": "-x"}, "name"),
        ({**FORM, "name": "x" * 64}, "name"),
        ({**FORM, "scopes": []}, "scopes"),
        ({**FORM, "scopes": ["all"]}, "scopes"),
        ({**FORM, "scopes": "jobs:read"}, "scopes"),
        ({**FORM, "scopes": ["jobs:read"] * 101}, "scopes"),
        ({**FORM, "expires": "soon"}, "expires"),
        ({**FORM, "expires": "0s"}, "expires"),
        ({**FORM, "for": "me"}, "for"),
    ]
    client = api()
    for body, field in bodies:
        errors = problem(client.post("/tokens", json=body), 422)["errors"]
        assert errors[0]["field"] == field, body
    assert client.get("/tokens").json() == {"tokens": []}
