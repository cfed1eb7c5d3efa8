"""Who may do what: tokens, scopes, proxies, loopback, and pages of other sites."""

from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from fastapi import APIRouter
from fastapi.routing import iter_route_contexts
from httpx2 import Response
from starlette.testclient import TestClient

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.queue import queues
from arctic_orchestration.compaction.queue.queue import QueueState
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.service import app, tokens
from arctic_orchestration.service.access import AccessRules, AnyCaller, Needs, Open
from arctic_orchestration.service.pages import files
from arctic_orchestration.service.scopes import parse_scopes
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.simulated import World
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.waiting.planted import plant_compaction, plant_partitions

MakeWorld = Callable[..., World]

ANN = Actor(name="ann", cluster="default")


def token(
    database: Database, *scopes: str, name: str = "t", lifetime: timedelta | None = None
) -> str:
    with database.begin() as tx:
        return tokens.create(tx, ANN, name, parse_scopes(scopes), lifetime)


def schedule(name: str) -> Schedule:
    trigger = on.partitions("raw/a", count=2)
    return Schedule(name=name, target="rollup", trigger=trigger, enabled=True)


#: what requests send that take another body than a schedule, by the end of their path
FORMS: dict[str, Any] = {
    "schedule-files": {"schedules": [schedule("a").to_form()]},
    "retry": {"all": True},
    "reset": {"start": "from_beginning"},
    "prioritize": {"level": 5},
    "submissions": {"names": ["a"]},
    "simulations": {
        "file": {"schedules": []},
        "timeline": [{"at": "2026-01-01T00:00:00Z", "do": "advance"}],
    },
    "tokens": {"name": "more", "scopes": ["*:read"]},
    "replays": {"schedule": schedule("a").to_form()},
    "{task:path}": {"reason": "x"},
    "events": {"arrivals": [{"asset": "raw/a", "partition": "1"}]},
    "{worker}": {"name": "w"},
    "claim": {"key": "k"},
    "beat": {},
    "merged": {"fencing_token": 1, "outputs": [], "rows_in": 0, "way": "append"},
    "failed": {"fencing_token": 1, "reason": "a test"},
    "released": {"fencing_token": 1},
}
#: posts that only read, or may only read
READING = ("schedule-files", "simulations", "replays")
#: what answers call what they list
LISTS = ("schedules", "jobs", "locations", "matched", "tables", "queues", "tasks", "records",
         "consumers", "events", "runs", "groups", "workers")  # fmt: skip


def declared(client: TestClient) -> list[tuple[str, str, str]]:
    """Method, path and scope of all routes that need one."""
    found = []
    for context in iter_route_contexts(client.app.routes):  # type: ignore[attr-defined]
        for one in context.dependant.dependencies:
            if isinstance(one.call, Needs):
                (method,) = context.methods or {"none"}
                found.append((method, str(context.path), str(one.call.scope)))
    return found


def has_objects(answer: Response) -> bool:
    """Whether an answer, as JSON or as a page, shows the schedule ``a`` or something of it."""
    if answer.status_code != 200:
        return False
    if answer.headers["content-type"].startswith("text/html"):
        return any(
            f'href="/{room}/' in answer.text
            for room in ("schedules", "jobs", "consumers", "events")
        )
    found = answer.json()
    return any(found.get(key) for key in LISTS)


def test_every_route_declares_its_scope(api: MakeApi) -> None:
    """One without stops the service; health and styles are open, the description to all known."""
    routes = api().app.routes  # type: ignore[attr-defined]
    free = {
        str(context.path): type(one.call)
        for context in iter_route_contexts(routes)
        for one in context.dependant.dependencies
        if isinstance(one.call, (Open, AnyCaller))
    }
    assert free == {
        "/healthz": Open,
        "/readyz": Open,
        **{f"/{name}": Open for name in files.FILES},
        "/api/v1/openapi.json": AnyCaller,
    }
    assert all(
        scope.endswith(":read") == (method == "GET") or path.endswith(READING) or scope == "*:write"
        for method, path, scope in declared(api())
    )
    careless = APIRouter()
    careless.add_api_route("/all", lambda: "everything")
    with pytest.raises(RuntimeError, match="without a declared scope: /api/v1/all"):
        app.bind((*app.ROUTERS, careless))


def test_beyond_loopback_nothing_is_served_without_a_token(
    api: MakeApi, database: Database
) -> None:
    """Only whether it runs; the first token changes nothing about that."""
    client = api(address="10.0.0.7", host="arctic.example", loopback=False)
    for method, path, _ in declared(client):
        for query in ("", "?no=such&limit=0"):
            answer = client.request(method, f"http://arctic.example{path}{query}", content="{")
            assert answer.status_code == 401, path
    assert client.get("http://arctic.example/healthz").status_code == 200
    assert client.get("/openapi.json").headers["www-authenticate"] == "Bearer"
    client.headers["Authorization"] = f"Bearer {token(database, '*:read')}"
    assert client.get("/schedules").status_code == 200
    assert client.get("/openapi.json").status_code == 200


def test_loopback_is_open_until_the_first_token(api: MakeApi, database: Database) -> None:
    """Revoking it does not open it again."""
    client = api()
    assert client.get("/schedules").status_code == 200
    assert api(require_token=True).get("/schedules").status_code == 401
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Remote-User"):
        assert client.get("/schedules", headers={header: "ann"}).status_code == 401, header
    token(database, "*:read")
    assert client.get("/schedules").status_code == 401
    with database.begin() as tx:
        tokens.revoke(tx, ANN, "t")
    assert client.get("/schedules").status_code == 401


def test_a_token_ends_when_it_is_revoked_or_expires(api: MakeApi, database: Database) -> None:
    """At once; what is no token is refused alike."""
    text = token(database, "*:read")
    client = api(token=text)
    assert client.get("/schedules").status_code == 200
    with database.read() as tx:
        (used,) = tokens.every(tx, "default")
    assert used.used_at is not None
    for wrong in (text[:-1] + "~", text[:-1], text.upper(), "arctic_", "", "é"):
        bad = client.get("/schedules", headers=[(b"Authorization", f"Bearer {wrong}".encode())])
        assert bad.status_code == 401, wrong
    assert client.get("/schedules", headers={"Authorization": f"Basic {text}"}).status_code == 401
    with database.begin() as tx:
        tokens.revoke(tx, ANN, "t")
    assert client.get("/schedules").status_code == 401
    short = token(database, "*:read", name="short", lifetime=timedelta(0))
    assert api(token=short).get("/schedules").status_code == 401
    with database.read() as tx:
        statuses = {one.name: one.status(utc_now()) for one in tokens.every(tx, "default")}
        assert tokens.find(tx, "elsewhere", short, utc_now() - timedelta(days=1)) is None
        assert text not in str(tokens.every(tx, "default"))
    assert statuses == {"short": "expired", "t": "revoked"}


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (["schedules:read"], {("GET", "schedules")}),
        (["schedules:write"], {("GET", "schedules"), ("POST", "schedules")}),
        (["*:read"], {("GET", "schedules"), ("GET", "jobs")}),
        (["jobs:write@location=there"], {("GET", "jobs")}),
        (["audit:read"], set()),
    ],
)
def test_a_scope_admits_a_verb_in_a_room(
    api: MakeApi, database: Database, world: MakeWorld, scopes: list[str], allowed: set[object]
) -> None:
    """Write includes read; what is not admitted is 403, and says what is missing."""
    world([schedule("a")])
    client = api(token=token(database, *scopes))
    tried = {
        ("GET", "schedules"): client.get("/schedules"),
        ("POST", "schedules"): client.post("/schedules/a/suspend"),
        ("GET", "jobs"): client.get("/jobs"),
        ("POST", "jobs"): client.post("/job-actions/cancel?location=here"),
    }
    assert {key for key, answer in tried.items() if answer.status_code == 200} == allowed
    refused = [answer for answer in tried.values() if answer.status_code != 200]
    assert {answer.status_code for answer in refused} <= {403}
    assert all("has no scope" in answer.json()["detail"] for answer in refused)


def test_a_narrowed_token_reaches_nothing_else(
    api: MakeApi, database: Database, world: MakeWorld
) -> None:
    """Every route, for an object of another location and of another name: 403, or an empty list."""
    here = world([schedule("a")])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    with database.begin() as tx:
        plant_compaction(tx)
        plant_partitions(tx)
    with_all = api()
    task = with_all.get("/compaction/tasks").json()["tasks"][0]["task"]
    assert with_all.put("/workers/w", json={"name": "w"}).status_code == 200
    with database.begin() as tx:
        queues.set_state(tx, "big", QueueState.OPEN)
        claim = attempts.claim(tx, (), "w", worker_id="w")
    assert claim is not None
    attempt = claim.attempt_id
    (job,) = with_all.get("/jobs").json()["jobs"]
    body = schedule("a").to_form()
    for number, limit in enumerate(("location=there", "schedule=b*")):
        text = token(database, f"*:write@{limit}", name=f"t{number}")
        client = api(token=text)
        described = client.get("/openapi.json").json()["paths"]
        for method, path, scope in declared(client):
            if limit == "schedule=b*" and scope.startswith("locations"):
                continue
            is_page = not path.startswith("/api/")
            written = path.replace(":path", "")
            takes_body = "requestBody" in described.get(written, {}).get(method.lower(), {})
            where = written.format(
                name="a", number=1, id=job["id"], location="here", action="enable",
                table="lake.busy",
                queue="big", queue_action="resume", task=task, task_action="cancel",
                consumer="totals", group="ops", pause_action="pause", run="none",
                token="t0",
                worker="w", worker_action="drain", attempt=attempt,
            )  # fmt: skip
            where = where.replace("job-actions/enable", "job-actions/cancel")
            form = FORMS.get(path.rpartition("/")[2], body)
            is_bulk = path.endswith("{action}") and not is_page
            query = "?dry_run=false&at_most=9" if is_bulk else ""
            sent: dict[str, Any] = {"json": form} if takes_body else {}
            headers = {"If-Match": "*", "Idempotency-Key": "k"}
            if is_page and method == "POST":
                fields = {"at_most": "9", "start": "from_beginning", "level": "5"}
                sent = {"data": {"confirmed": "yes", **fields}}
                headers["Sec-Fetch-Site"] = "same-origin"
            if path.endswith("/why-not"):
                query = "?schedule=a&at=2026-01-01T00:00:00Z"
            answer = client.request(
                method,
                f"http://localhost{where}{query}",
                headers=headers,
                **sent,
            )
            assert not has_objects(answer), (method, path, limit)
            assert answer.status_code in (200, 403), (method, path, limit, answer.text)
    with database.begin() as tx:
        for number in range(2):
            tokens.revoke(tx, ANN, f"t{number}")
    again = api(token=token(database, "*:read", name="again"))
    assert again.get("/jobs").json()["jobs"] == [job]


def test_a_proxy_that_is_trusted_names_the_user(
    api: MakeApi, database: Database, world: MakeWorld
) -> None:
    """Its groups have scopes; from another address the same headers are refused."""
    world([schedule("a")])
    groups = {"*": parse_scopes(["*:read"]), "ops": parse_scopes(["schedules:write"])}
    rules = {"loopback": False, "proxies": (ip_network("10.1.0.0/16"),), "groups": groups}
    headers = {"Remote-User": "ann", "X-Forwarded-For": "6.6.6.6, 192.0.2.9"}
    near = api(address="10.1.2.3", host="arctic.example", **rules)
    assert near.get("/schedules").status_code == 401
    assert near.get("/schedules", headers=headers).status_code == 200
    assert near.post("/schedules/a/suspend", headers=headers).status_code == 403
    headers["Remote-Groups"] = "staff,ops"
    assert near.post("/schedules/a/suspend", headers=headers).status_code == 200
    (record,) = near.get("/audit", headers=headers).json()["records"]
    assert (record["actor"], record["address"]) == ("ann", "192.0.2.9")
    far = api(address="10.2.0.1", host="arctic.example", **rules)
    assert far.get("/schedules", headers=headers).status_code == 401


def test_a_page_of_another_site_changes_nothing(api: MakeApi, world: MakeWorld) -> None:
    """Neither by its origin, nor by a form, nor by a name that resolves to loopback."""
    world([schedule("a")])
    client = api()
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert client.post("/schedules/a/suspend", headers=headers).status_code == 403, headers
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.post("/schedules", content="name=a", headers=form).status_code == 415
    assert client.post("/schedules", content="{}", headers={"Content-Type": "text/plain"}
                       ).status_code == 415  # fmt: skip
    for host in ("evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example"):
        assert client.get("/schedules", headers={"Host": host}).status_code == 421, host
    own = {"Origin": "http://localhost:3001", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/schedules/a/suspend", headers=own).status_code == 200
    for host in ("127.0.0.1:3001", "[::1]:3001", "LOCALHOST"):
        assert client.get("/schedules", headers={"Host": host}).status_code == 200, host


def test_rules_are_read_from_the_environment() -> None:
    """Networks and the scopes of groups; what is neither is refused by name."""
    environment = {
        "ARCTIC_TRUSTED_PROXIES": "10.0.0.5, ::1",
        "ARCTIC_GROUP_SCOPES": "ops=*:write; staff=*:read jobs:write",
    }
    rules = AccessRules.from_environment(loopback=False, environment=environment)
    assert rules.trusts("10.0.0.5")
    assert not rules.trusts("10.0.0.6")
    assert not rules.trusts("testclient")
    assert {name: [*map(str, scopes)] for name, scopes in rules.groups.items()} == {
        "ops": ["*:write"],
        "staff": ["*:read", "jobs:write"],
    }
    for name, value in {
        "ARCTIC_TRUSTED_PROXIES": "proxy",
        "ARCTIC_GROUP_SCOPES": "ops=all",
    }.items():
        with pytest.raises(InvalidInput) as refusal:
            AccessRules.from_environment(loopback=True, environment={name: value})
        assert refusal.value.field == name


@pytest.mark.parametrize(
    "text",
    ["", "schedules", "schedules:delete", "x:read", "*:read@", "*:read@table=a", "*:read@asset="],
)
def test_what_is_no_scope_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="expected room:verb"):
        parse_scopes([text])


def test_an_error_names_nothing_that_the_caller_may_not_see(
    api: MakeApi, database: Database, world: MakeWorld
) -> None:
    """Without a limit it lists similar names; with one only what was asked for."""
    world([schedule("fir_tree"), schedule("payroll")])
    world([schedule("fir_tree")], location="west")
    limited = api(token=token(database, "schedules:read@schedule=fir*"))
    for path in (
        "/schedules/firs?location=here",
        "/schedules/fir_tree?location=nope",
        "/schedules/fir_tree",
    ):
        text = limited.get(path).text
        assert "payroll" not in text, path
        assert "west" not in text, path
    free = api(token=token(database, "*:read", name="free"))
    assert "west" in free.get("/schedules/fir_tree?location=nope").text


@pytest.mark.parametrize(
    "header", ["via", "x-forwarded-host", "x-forwarded-proto", "cf-connecting-ip", "x-real-ip"]
)
def test_what_a_proxy_has_passed_on_is_not_from_loopback(
    api: MakeApi, database: Database, header: str
) -> None:
    """A proxy on the same host would open the service to everybody."""
    assert api().get("/schedules").status_code == 200
    assert api().get("/schedules", headers={header: "1.1 proxy"}).status_code == 401


def test_a_client_of_a_proxy_cannot_claim_a_user_or_an_address(
    api: MakeApi, database: Database, world: MakeWorld
) -> None:
    """The last line is the proxy's own; two users are refused; Basic is the proxy's affair."""
    world([schedule("a")])
    proxies = (ip_network("10.0.0.5"),)
    rules = {"proxies": proxies, "loopback": False, "groups": {"*": parse_scopes(["*:write"])}}
    client = api(address="10.0.0.5", host="arctic.example", **rules)
    user = [("Remote-User", "ada")]
    assert client.get("/schedules", headers=[*user, ("Remote-User", "root")]).status_code == 401
    groups = [("Remote-Groups", "a"), ("Remote-Groups", "b")]
    assert client.get("/schedules", headers=[*user, *groups]).status_code == 401
    basic = [*user, ("Authorization", "Basic YTpi")]
    assert client.get("/schedules", headers=basic).status_code == 200
    addresses = [("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-For", "203.0.113.9")]
    answer = client.post("/schedules/a/suspend", headers=[*user, *addresses])
    assert answer.status_code == 200, answer.text
    (record,) = client.get("/audit?feature=schedules", headers=user).json()["records"]
    assert (record["actor"], record["address"]) == ("ada", "203.0.113.9")
