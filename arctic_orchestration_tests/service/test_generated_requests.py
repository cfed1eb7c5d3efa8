"""Requests that schemathesis generates from the description of the API, valid ones and others.

No answer is an error of the service, and none has a status, a media type or a form that the
description lacks.
"""

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from schemathesis.core.failures import FailureGroup
from starlette.testclient import TestClient

from arctic_orchestration import postgres_connections
from arctic_orchestration.dagster_internals import create_postgres_engine, replace_engine_factory
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.schedules.views.locations import ListedLocation
from arctic_orchestration.service import locations, simulation
from arctic_orchestration.service.claim_waiters import ClaimWaiters
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.simulated import World
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token
from arctic_orchestration_tests.waiting.planted import plant_compaction, plant_partitions

#: how many requests in all
CASES = 10_000 if os.environ.get("ARCTIC_PROOF") == "full" else 200
_LOCAL = {"Host": "localhost"}
_CHECKED = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
]


TRIGGER = on.partitions("raw/a", count=2) | on.cron("0 4 * * *")
FORM = Schedule(name="a", target="rollup", trigger=TRIGGER, enabled=True).to_form()
_numbers = itertools.count(1)
#: of workers' requests that come through, by the last word of the operation's path
BODIES: dict[str, Any] = {
    "{worker}": {"name": "w"},
    "claim": {"key": "k"},
    "beat": {},
    "merged": {"fencing_token": 1, "outputs": [], "rows_in": 0, "way": "append"},
    "failed": {"fencing_token": 1, "reason": "a test"},
    "released": {"fencing_token": 1},
}


def attempt_of(client: TestClient, task: str) -> str | None:
    """The last attempt of a task."""
    tried = client.get(f"/compaction/tasks/{task}").json()["tried"]
    return tried[-1]["attempt"] if tried else None


def make_objects(client: TestClient) -> dict[str, Any]:
    """Makes what requests may be about, unless it is there; returns parameters of paths."""
    client.post("/schedules", json=FORM)
    client.put("/workers/w", json={"name": "w"})
    job = client.post("/schedules/a/launch").json()
    tasks = client.get("/compaction/tasks?state=all").json()["tasks"]
    return {
        "name": "a", "id": job["id"], "location": "here", "action": "cancel",
        "table": "lake.busy", "queue": "big", "queue_action": "pause",
        "task": tasks[0]["task"] if tasks else "none", "task_action": "retry",
        "consumer": "totals", "group": "ops", "pause_action": "pause", "run": "none",
        "token": "none", "worker": "w", "worker_action": "drain",
        "attempt": (tasks and attempt_of(client, tasks[0]["task"])) or "none",
    }  # fmt: skip


class Objects:
    """What requests may be about, made again when one was changed: what is refused changes none."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self._there: dict[str, Any] | None = None

    def there(self) -> dict[str, Any]:
        """Parameters of paths."""
        if self._there is None:
            self._there = make_objects(self.client)
        return self._there

    def see(self, case: Any, status: int) -> None:
        """A request was answered."""
        if case.method != "GET" and status < 400:
            self._there = None


def sound(operation: Any, path: dict[str, Any]) -> Any:
    """Requests that come through: about what is there, without filters, with a definition."""
    options: dict[str, Any] = {"path_parameters": path, "query": {}, "headers": {"If-Match": "*"}}
    if operation.method == "get":
        pass
    elif operation.path.endswith("schedule-files"):
        options["body"] = {"schedules": [FORM]}
    elif operation.path.endswith("/retry"):
        options["body"] = {"all": True}
    elif operation.path.endswith("/reset"):
        options["body"] = {"start": "from_beginning"}
    elif operation.path.endswith("/prioritize"):
        options["body"] = {"level": 5}
    elif operation.path.endswith("/tokens"):
        options["body"] = {"name": f"t{next(_numbers)}", "scopes": ["*:read"]}
    elif operation.path.endswith("/simulations"):
        advance = {"at": "2026-01-01T00:00:00Z", "do": "advance"}
        options["body"] = {"file": {"schedules": [FORM]}, "timeline": [advance]}
    elif operation.path.endswith("/replays"):
        options["body"] = {"schedule": FORM}
    elif operation.path.endswith("/submissions"):
        options["body"] = {"names": ["top"]}
    elif "/skip-list/" in operation.path and operation.method == "put":
        options["body"] = {"reason": "x"}
    elif operation.path.endswith("/events"):
        options["headers"]["Idempotency-Key"] = f"k{next(_numbers) % 9}"
        options["body"] = {"arrivals": [{"asset": "raw/a", "partition": "1"}]}
    elif operation.body:
        options["body"] = BODIES.get(operation.path.rpartition("/")[2], FORM)
    if "body" in options:
        options["media_type"] = "application/json"
    return operation.as_strategy(GenerationMode.POSITIVE, **options)


def _headers(client: TestClient) -> dict[str, str]:
    """Those of a local request with the client's token, since the first token closes loopback."""
    known = client.headers.get("Authorization")
    return _LOCAL if known is None else {**_LOCAL, "Authorization": known}


def exercise(operation: Any, objects: Objects, examples: int) -> Counter[int]:
    """Checks the answers to some requests of an operation; returns how many had which status."""
    names = {parameter.name for parameter in operation.path_parameters}
    path = {name: value for name, value in objects.there().items() if name in names}
    checks = CHECKS.get_by_names(_CHECKED)
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.one_of(
            sound(operation, path),
            operation.as_strategy(GenerationMode.POSITIVE, path_parameters=path),
            operation.as_strategy(GenerationMode.NEGATIVE, path_parameters=path),
            operation.as_strategy(GenerationMode.POSITIVE),
        )
    )
    def call(case: Any) -> None:
        there = objects.there() if case.method != "GET" else {}
        if "id" in there and case.path_parameters.get("id") == path.get("id"):
            # An earlier request may have ended that job.
            case.path_parameters = {**case.path_parameters, "id": there["id"]}
        if case.body == FORM and case.method == "POST":
            case.body = {**FORM, "name": f"new_{next(_numbers)}"}
        answer = case.call(headers=_headers(objects.client))
        statuses[answer.status_code] += 1
        objects.see(case, answer.status_code)
        case.validate_response(answer, checks=checks)

    call()
    return statuses


async def at_once(*_: Any) -> bool:
    """A claim that waits for nothing."""
    return False


@pytest.fixture
def reused(instance: object) -> Iterator[None]:
    """Requests make instances like this one, each of which would open its own connections."""
    postgres_connections.reuse_in_process()
    yield
    replace_engine_factory(create_postgres_engine)


@pytest.mark.proof
@pytest.mark.timeout(3_600)
@pytest.mark.usefixtures("reused")
def test_no_request_breaks_the_service(
    api: MakeApi,
    database: Database,
    world: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of each operation the same number, on one database, so that they meet what others left."""
    # A process for each simulation would cost more than all the rest.
    monkeypatch.setattr(simulation, "run", lambda question: simulation.answers(**question))
    world()
    monkeypatch.setattr(ClaimWaiters, "wait", at_once)
    with database.begin() as tx:
        plant_compaction(tx)
        plant_partitions(tx)
    client = api(token=token(database, "*:write", name="admin"))
    headers = _headers(client)
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", client.app, headers=headers)
    operations = [cast("Any", result).ok() for result in schema.get_all_operations()]
    assert len(operations) > 20
    statuses: Counter[int] = Counter()
    # Operations without parameters have few different requests.
    examples = -(-CASES // (len(operations) - 10))
    objects = Objects(client)
    for operation in operations:
        statuses += exercise(operation, objects, examples)
    # The requests came through to the resources.
    assert {200, 201, 202, 204, 400, 404, 422} <= statuses.keys(), statuses
    assert statuses.total() >= CASES


def test_a_defect_would_be_noticed(
    api: MakeApi, world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: an answer of another form is an error of the service."""
    world()
    client = api()
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", client.app, headers=_LOCAL)
    operation = schema["/api/v1/locations"]["GET"]
    objects = Objects(client)
    exercise(operation, objects, 2)
    incomplete: Any = ListedLocation.model_construct
    found = [incomplete(name="here")]
    monkeypatch.setattr(locations, "list_locations", lambda *_: found)
    with pytest.raises(FailureGroup):
        exercise(operation, objects, 2)
