"""The audit log: every change of a person, over REST and by command, with its transaction."""

import getpass
from collections.abc import Callable
from ipaddress import ip_network
from typing import Any

import pytest

from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.service.scopes import parse_scopes
from arctic_orchestration.state import audit
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.cli.conftest import Outcome, arctic
from arctic_orchestration_tests.schedules.simulated import World
from arctic_orchestration_tests.service.conftest import MakeApi

MakeWorld = Callable[..., World]

__all__ = ["arctic"]


def changes(database: Database) -> list[tuple[str, str, Any, Any]]:
    """Actor, command, and the states before and after; oldest first."""
    with database.read() as tx:
        found = audit.records(tx, limit=100)
    return [
        (one.actor.name, f"{one.feature} {one.action}", one.before, one.after)
        for one in reversed(found)
    ]


def waiting(name: str = "a") -> Schedule:
    trigger = on.partitions("raw/a", count=2)
    return Schedule(name=name, target="rollup", trigger=trigger, enabled=True)


def test_each_change_over_rest_is_recorded(
    api: MakeApi, database: Database, world: MakeWorld
) -> None:
    """Who, what, before, after, from where, by which request; a refused change is not."""
    world()
    client = api()
    form = waiting().to_form()
    changed = {**form, "priority": 2}
    client.post("/schedules", json=form, headers={"X-Request-Id": "first"})
    client.post("/schedules", json=form)
    client.put("/schedules/a", json=changed)
    client.put("/schedules/a", json=changed, headers={"If-Match": "*"})
    client.put("/schedules/a", json=changed, headers={"If-Match": "*"})
    client.post("/schedules/a/suspend")
    client.post("/schedules/a/suspend")
    client.delete("/schedules/a")
    enabled, suspended = {"status": "enabled"}, {"status": "suspended"}
    assert changes(database) == [
        ("loopback", "schedules create", None, form),
        ("loopback", "schedules update", form, changed),
        ("loopback", "schedules suspend", enabled, suspended),
        ("loopback", "schedules delete", changed, None),
    ]
    first = client.get("/audit").json()["records"][-1]
    assert (first["address"], first["request_id"]) == ("127.0.0.1", "first")
    assert (first["subject"], first["details"]) == ("a", {"location": "here"})
    page = client.get("/audit?limit=3").json()
    rest = client.get(f"/audit?limit=3&cursor={page['next_cursor']}").json()
    assert [one["action"] for one in (*page["records"], *rest["records"])] == [
        "delete",
        "suspend",
        "update",
        "create",
    ]
    assert rest["next_cursor"] is None
    assert len(client.get("/audit?actor=nobody").json()["records"]) == 0


def test_each_change_by_command_is_recorded(
    database: Database,
    world: MakeWorld,
    arctic: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Likewise, with the system's user and no address."""
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    here = world([waiting()])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    with database.read() as tx:
        (job,) = tx.exec_driver_sql("select id from arctic_jobs").scalars()
    for arguments in (
        ("jobs", "launch", job),
        ("schedules", "suspend", "a"),
        ("schedules", "enable", "a"),
        ("schedules", "enable", "a"),
        ("schedules", "delete", "a", "--yes"),
    ):
        assert arctic(*arguments).code == 0
    assert [line[:2] for line in changes(database)] == [
        ("ann", "jobs launch"),
        ("ann", "schedules suspend"),
        ("ann", "schedules enable"),
        ("ann", "schedules delete"),
    ]
    _, _, before, after = changes(database)[0]
    assert (before["state"], after["state"]) == ("waiting_trigger", "waiting_constraints")


def test_a_change_that_fails_leaves_no_record(
    api: MakeApi, database: Database, world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a record that fails leaves no change: they are one transaction."""
    world([waiting()])
    client = api()

    def fail(*arguments: Any, **details: Any) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(audit, "record", fail)
        assert client.post("/schedules/a/suspend").status_code == 500
        assert client.post("/schedules/a/launch").status_code == 500
    assert client.get("/schedules/a").json()["status"] == "enabled"
    assert client.get("/jobs").json()["jobs"] == []
    assert changes(database) == []


def test_tokens_are_made_listed_and_revoked_by_command(
    api: MakeApi, database: Database, arctic: Callable[..., Outcome]
) -> None:
    """The token is printed once, and neither listed nor recorded."""
    made = arctic("tokens", "create", "ci", "--scope", "*:read", "--expires", "90d")
    assert made.code == 0, made.err
    text = made.out.strip()
    assert api(token=text).get("/schedules").status_code == 200
    listed = arctic("tokens", "list")
    assert "ci" in listed.out
    assert "active" in listed.out
    again = arctic("tokens", "create", "ci", "--scope", "*:read")
    assert (again.code, "There is or was a token ci" in again.err) == (2, True)
    assert arctic("tokens", "revoke", "ci").code == 0
    assert api(token=text).get("/schedules").status_code == 401
    assert arctic("tokens", "revoke", "ci").code == 2
    assert arctic("tokens", "revoke", "nobody").code == 2
    for arguments in (("b", "--scope", "x"), ("b", "--scope", "*:read", "--expires", "soon"),
                      ("-b", "--scope", "*:read"), ("a b", "--scope", "*:read")):  # fmt: skip
        assert arctic("tokens", "create", *arguments).code == 2
    assert [line[1] for line in changes(database)] == ["tokens create", "tokens revoke"]
    secret = text.split("_", 2)[2]  # the secret itself may hold underscores
    with database.read() as tx:
        stored = [tuple(row) for row in tx.exec_driver_sql("select * from arctic_tokens")]
    assert secret not in str(stored) + str(changes(database)) + arctic("audit", "--json").out


def test_a_proxy_may_write_names_in_utf_8_or_latin_1(
    api: MakeApi, database: Database, world: MakeWorld
) -> None:
    """As they stand in the audit log and in the scopes of groups."""
    world([waiting()])
    groups = {"*": (), "büro": parse_scopes(["*:write"])}
    client = api(address="10.0.0.5", proxies=(ip_network("10.0.0.5"),), groups=groups)
    for action, encoding in (("suspend", "utf-8"), ("enable", "latin-1")):
        names = {"Remote-User": "zoë", "Remote-Groups": "büro"}
        sent = [(name.encode(), text.encode(encoding)) for name, text in names.items()]
        answer = client.post(f"/schedules/a/{action}", headers=sent)
        assert answer.status_code == 200, answer.text
        (record, *_) = client.get("/audit", headers=sent).json()["records"]
        assert record["actor"] == "zoë"
