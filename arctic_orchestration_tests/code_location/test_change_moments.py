"""Commands of a person between an arrival and the next tick, on a real instance."""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg2
import pytest
from starlette.testclient import TestClient

from arctic_orchestration import Arctic
from arctic_orchestration.clock import utc_now
from arctic_orchestration.schedules.cli import jobs, schedules
from arctic_orchestration.service.access import AccessRules
from arctic_orchestration.service.app import create_app
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import events
from arctic_orchestration.state.tables import jobs as job_rows
from arctic_orchestration_tests.cli.conftest import Outcome, arctic
from arctic_orchestration_tests.code_location.conftest import Place
from arctic_orchestration_tests.event_log.writers import _insert

YAML = """
schedules:
- name: s
  target: {job: sums}
  trigger: {partitions: {asset: raw/flights, count: COUNT}}
  description: TEXT
  suspend_mode: MODE
  enabled: ENABLED
"""


@dg.op
def add() -> None:
    """Nothing: its runs are only requested."""


@dg.job
def sums() -> None:
    add()


def definitions() -> dg.Definitions:
    return dg.Definitions.merge(
        dg.Definitions(jobs=[sums]), Arctic(schedules=[], location="here").definitions()
    )


class Lake:
    """A location without schedules of its own, and the command beside it."""

    def __init__(self, place: Place, arctic: Callable[..., Outcome], folder: Path) -> None:
        self.place = place
        self._arctic = arctic
        self._file = folder / "schedules.yaml"
        self.definitions = definitions()
        self.runs()

    def apply(
        self, text: str, *, count: int = 1, enabled: bool = True, mode: str = "drain"
    ) -> Outcome:
        form = YAML.replace("COUNT", str(count)).replace("TEXT", text).replace("MODE", mode)
        self._file.write_text(form.replace("ENABLED", str(enabled).lower()))
        return self.arctic("schedules", "apply", str(self._file), "--yes")

    def arctic(self, *words: str) -> Outcome:
        result = self._arctic(*words)
        assert result.code == 0, result.err
        return result

    def arrive(self, *partitions: str) -> None:
        self.place.announce(*partitions, asset="raw/flights")

    def runs(self) -> int:
        """Ticks; how many runs are requested."""
        return len(self.place.tick(self.definitions).run_requests or ())


@pytest.fixture
def lake(place: Place, arctic: Callable[..., Outcome], tmp_path: Path) -> Lake:
    return Lake(place, arctic, tmp_path)


def test_what_arrived_before_enable_makes_no_run(lake: Lake) -> None:
    """What arrives after it does."""
    lake.apply("a", enabled=False)
    lake.arrive("before")
    result = lake.arctic("schedules", "enable", "s")
    assert result.err == ""
    assert lake.runs() == 0
    lake.arrive("after")
    assert lake.runs() == 1


def test_a_change_over_rest_reads_the_log_likewise(lake: Lake) -> None:
    """An arrival of before is not taken, one of after is."""
    lake.apply("a", enabled=False)
    lake.arrive("before")
    settings = Settings.from_environment()
    database = Database.open(settings.database_url)
    app = create_app(settings, database, AccessRules())
    client = TestClient(app, base_url="http://localhost/api/v1")
    assert client.post("/schedules/s/enable").status_code == 200
    database.close()
    assert lake.runs() == 0
    lake.arrive("after")
    assert lake.runs() == 1


def test_add_one_of_five_update_add_four(lake: Lake) -> None:
    """No run: the first counted for the old version. A fifth makes one."""
    lake.apply("old", count=5)
    lake.arrive("1")
    lake.apply("new", count=5)
    lake.arrive("2", "3", "4", "5")
    assert lake.runs() == 0
    lake.arrive("6")
    assert lake.runs() == 1


def test_what_arrived_before_a_suspension_is_not_lost(lake: Lake) -> None:
    """It drains: the job of what came before goes on, what comes after is ignored."""
    lake.apply("a")
    lake.arrive("before")
    lake.arctic("schedules", "suspend", "s")
    lake.arrive("after")
    assert lake.runs() == 1
    assert len(lake.place.states()) == 1


def test_what_arrived_before_a_schedule_was_created_again_does_not_count(lake: Lake) -> None:
    """Deleted and applied within a tick's interval."""
    lake.apply("a", count=2)
    lake.arrive("before")
    lake.arctic("schedules", "delete", "s", "--yes")
    lake.arrive("between")
    lake.apply("a", count=2)
    lake.arrive("after")
    assert lake.runs() == 0
    lake.arrive("second")
    assert lake.runs() == 1


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(hours=1)])
def test_without_an_instance_the_command_says_that_moments_decide(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, ahead: timedelta
) -> None:
    """And they do, also if the clock of the command is ahead of the database's."""
    lake.apply("a", enabled=False)
    lake.arrive("before")
    with monkeypatch.context() as patched:
        patched.delenv("DAGSTER_HOME")
        patched.setattr(schedules, "utc_now", lambda: utc_now() + ahead)
        result = lake.arctic("schedules", "enable", "s")
    assert re.search("note: .*DAGSTER_HOME is not set.* events count by their moments", result.err)
    assert lake.runs() == 0
    lake.arrive("after")
    assert lake.runs() == 1


def test_a_job_is_launched_by_the_next_tick_though_the_clock_of_the_command_is_ahead(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an hour; the job waits for a second partition."""
    lake.apply("a", count=2)
    lake.arrive("1")
    assert lake.runs() == 0
    ((id,),) = lake.place.rows(job_rows, "id")
    with monkeypatch.context() as patched:
        patched.setattr(jobs, "utc_now", lambda: utc_now() + timedelta(hours=1))
        lake.arctic("jobs", "launch", id)
    assert lake.runs() == 1


@pytest.mark.parametrize("mode", ["backlog", "collect"])
def test_what_collects_loses_nothing_if_moments_decide(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """It took events before it was enabled, and takes them after."""
    lake.apply("a", count=2, enabled=False, mode=mode)
    lake.arrive("before")
    with monkeypatch.context() as patched:
        patched.delenv("DAGSTER_HOME")
        lake.arctic("schedules", "enable", "s")
    lake.arrive("after")
    assert lake.runs() == 1


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_what_is_committed_after_the_command_counts_though_its_id_is_smaller(lake: Lake) -> None:
    """Its transaction was open: two ids were given out, the later one was committed first."""
    lake.apply("a", enabled=False)
    storage: Any = lake.place.instance.event_log_storage
    connection = psycopg2.connect(storage.postgres_url.replace("+psycopg2", ""))
    with connection.cursor() as cursor:
        _insert(storage, cursor, "late")
        lake.arrive("before")
        lake.arctic("schedules", "enable", "s")
        connection.commit()
    connection.close()
    assert lake.runs() == 1
    assert lake.place.rows(events, "partition") == [("late",)]


__all__ = ["arctic"]
