"""The sensors of a code location send their notices together."""

from pathlib import Path

import pytest

from arctic_orchestration import Arctic, Freshness, Schedule
from arctic_orchestration.notifications.notifier import Notifier
from arctic_orchestration_tests.code_location.conftest import Place
from arctic_orchestration_tests.code_location.tasks_of_tests import flights, report
from arctic_orchestration_tests.code_location.tasks_place import Tasks, tasks

__all__ = ["tasks"]


def test_they_do_not_exceed_the_limit_of_a_channel_together(
    place: Place, tasks: Tasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "notifications.yaml"
    path.write_text("channels: [{url: 'json://localhost'}]")
    monkeypatch.setenv("ARCTIC_NOTIFICATIONS", str(path))
    woken: list[Notifier] = []
    monkeypatch.setattr(Notifier, "wake", lambda self: woken.append(self))
    raw = Schedule(
        name="raw", trigger={"partitions": {"asset": "flights"}}, target={"job": "report"}
    )
    freshness = Freshness(tasks=[flights, report])
    definitions = Arctic(schedules=[raw], freshness=freshness).definitions()
    place.tick(definitions)
    tasks.declare(definitions)
    first, second = woken
    assert first is second
