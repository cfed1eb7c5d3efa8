"""The home of ``tools/planted_waits.py``: what its key says is what the service shows."""

import importlib
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from arctic_orchestration.service.access import AccessRules
from arctic_orchestration.service.app import create_app
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database


def test_each_planted_cause_is_shown_with_one_object(
    pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten causes and no other; a run is named by its id, and its job stands in the run queue."""
    monkeypatch.syspath_prepend(str(pytestconfig.rootpath / "tools"))
    planted_waits: Any = importlib.import_module("planted_waits")
    home = tmp_path / "home"
    planted_waits.plant(home)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.delenv("ARCTIC_DATABASE_URL", raising=False)
    settings = Settings.from_environment()
    database = Database.open(settings.database_url)
    try:
        app = create_app(settings, database, AccessRules())
        client = TestClient(
            app, base_url="http://localhost:3001/api/v1", client=("127.0.0.1", 50_000)
        )
        groups = client.get("/waiting?group_by=cause").json()["groups"]
        jobs = {run["run_id"]: run["job"] for run in client.get("/runs").json()["runs"]}
    finally:
        database.close()
    assert [group["count"] for group in groups] == [1] * 10
    assert {
        (group["kind"], group["cause"], jobs.get(example["id"], example["name"]))
        for group in groups
        for example in group["examples"]
    } == {tuple(line[:3]) for line in planted_waits.KEY}
