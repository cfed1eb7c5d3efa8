"""``/tokens``: created once, listed and revoked over REST, by administrators alone."""

from typing import Any

import pytest

from arctic_orchestration.state import audit
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token
from arctic_orchestration_tests.service.test_problems import problem

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
