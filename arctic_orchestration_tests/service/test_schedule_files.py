"""``/schedule-files`` with ``prune``: what is not in the file is deleted, if it may be."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.simulated import World
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token
from arctic_orchestration_tests.service.test_schedules import NIGHTLY, names, schedule

FILE = json.dumps({"schedules": [{**NIGHTLY, "name": "raw_a"}]})
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def here(world: Callable[..., World], api: MakeApi) -> World:
    """The code declares one schedule; a person made three."""
    made = world([schedule("declared")])
    client = api()
    for name in ("other", "raw_a", "raw_b"):
        answer = client.post("/schedules", json={**NIGHTLY, "name": name})
        assert answer.status_code == 201, answer.text
    return made


@pytest.mark.usefixtures("here")
def test_prune_deletes_what_was_created_manually_and_is_not_in_the_file(api: MakeApi) -> None:
    """Never what the code declares; a dry run is the default, and without prune nothing goes."""
    client = api()

    def sent(query: str) -> dict[str, Any]:
        answer = client.post(f"/schedule-files?{query}", content=FILE, headers=JSON)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    every = ["declared", "other", "raw_a", "raw_b"]
    assert sent("dry_run=false")["difference"]["deleted"] == []
    assert sent("prune=true")["difference"]["deleted"] == ["other", "raw_b"]
    assert names(client.get("/schedules")) == every
    assert sent("prune=true&dry_run=false")["difference"]["deleted"] == ["other", "raw_b"]
    assert names(client.get("/schedules")) == ["declared", "raw_a"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("dry_run", ["true", "false"])
def test_a_narrowed_token_prunes_nothing_of_others(
    api: MakeApi, database: Database, dry_run: str
) -> None:
    """Not even what it may delete, if the rest would go with it; nor does it learn the names."""
    client = api(token=token(database, "schedules:write@schedule=raw_*"))
    query = f"prune=true&dry_run={dry_run}"
    refused = client.post(f"/schedule-files?{query}", content=FILE, headers=JSON)
    assert refused.status_code == 403, refused.text
    assert "other" not in refused.text
    everybody = api(token=token(database, "*:read", name="reader"))
    assert names(everybody.get("/schedules")) == ["declared", "other", "raw_a", "raw_b"]
