"""``arctic doctor``: what it finds of the run coordinator and of the daemon behind the queue."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration.cli.doctor.command import examine
from arctic_orchestration.console.actor import person
from arctic_orchestration.console.findings import BAD, GOOD, WARNING
from arctic_orchestration.run_queue.dagster import passes
from arctic_orchestration.schedules.inventory import Inventory, store
from arctic_orchestration.schedules.location import locked
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import Origin
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.cli.conftest import Clock, Outcome
from arctic_orchestration_tests.cli.test_doctor import instance
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import OURS, STOCK, RunQueue

MakeQueue = Callable[..., RunQueue]

__all__ = ["instance"]

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ON_SQLITE = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
START = "start it: dagster-daemon run, or dagster dev"


def found() -> dict[str, tuple[str, str, str]]:
    """Status, finding and advice by check."""
    return {f.check: (f.status, f.found, f.advice) for f in examine()}


@ON_SQLITE
def test_the_stock_class_is_well_without_rules(
    ruled: MakeQueue, make_queue: MakeQueue, backend: str
) -> None:
    """So is ours without any; neither needs passes that are noted."""
    make_queue(backend, STOCK)
    findings = found()
    status, what, advice = findings["run coordinator"]
    assert (status, advice) == (GOOD, "")
    assert what.startswith("QueuedRunCoordinator, which has no rules")
    assert not {"windows", "paused"} & set(findings)
    ruled(max_concurrent_runs=3)
    assert found()["run coordinator"] == (
        GOOD,
        "ArcticRunCoordinator without rules: runs start as with Dagster's own class",
        "",
    )


def test_a_daemon_that_goes_through_the_queue_is_well(ruled: MakeQueue, clock: Clock) -> None:
    """With its rules counted; one that was silent for more than a minute is not."""
    groups = {"few": {"limit": 1}, "many": {"limit": 9}}
    queue = ruled(groups=groups, rates={"api": {"limit": 1, "per": "1m"}})
    rules = "ArcticRunCoordinator: 2 groups, 1 rate"
    never = f"{rules}; the daemon never went through the queue"
    assert found()["run coordinator"] == (BAD, never, START)
    queue.iterate()
    well = f"{rules}; last pass 2026-03-02 12:00:00Z"
    assert found()["run coordinator"] == (GOOD, well, "")
    clock.pass_(seconds=61)
    silent = f"{rules}; the daemon went through the queue last at 2026-03-02 12:00:00Z"
    assert found()["run coordinator"] == (BAD, silent, START)


def test_trouble_of_the_last_pass_is_found(
    ruled: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the daemon noted it; it is gone with the first pass that went well."""
    queue = ruled(groups={"few": {"limit": 1}})

    def broken(*_: Any) -> None:
        raise RuntimeError("no plan")

    with monkeypatch.context() as patched:
        patched.setattr(passes.DaemonPasses, "_plan", broken)
        queue.iterate()
    status, what, advice = found()["run coordinator"]
    assert (status, advice) == (BAD, "see the daemon's log")
    assert "the daemon has trouble: RuntimeError: no plan" in what
    queue.iterate()
    assert found()["run coordinator"][0] == GOOD


@ON_SQLITE
def test_what_is_shut_now_is_found(
    ruled: MakeQueue, arctic: Callable[..., Outcome], clock: Clock
) -> None:
    """A closed window is as usual; a pause may have been forgotten, and can be undone."""
    hours = {"start": "22:00", "end": "06:00"}
    queue = ruled(
        windows={"night": hours}, queues={"low": {"paused": True}}, groups={"few": {"limit": 1}}
    )
    arctic("queues", "pause", "few", "--group", "--reason", "moving house")
    queue.iterate()
    findings = found()
    assert findings["windows"] == (GOOD, "closed: night until 2026-03-02 22:00:00Z", "")
    status, what, advice = findings["paused"]
    assert status == WARNING
    assert what == (
        "queue low is paused in dagster.yaml; "
        f"group few is paused since 2026-03-02 12:00:00Z by {person()} (moving house)"
    )
    assert advice == (
        "if it was forgotten: arctic queues resume low, arctic queues resume few --group"
    )
    arctic("queues", "resume", "low")
    arctic("queues", "resume", "few", "--group")
    clock.pass_(hours=10)
    findings = found()
    assert "paused" not in findings
    assert findings["windows"] == (GOOD, "all 1 are open", "")


@ON_SQLITE
def test_limits_that_dagster_would_replace_are_found(
    make_queue: MakeQueue, backend: str, arctic: Callable[..., Outcome]
) -> None:
    """As the daemon will refuse them; the other checks go on."""
    config = {**OURS, "config": {"groups": {"few": {"limit": 1}}}}
    make_queue(backend, config, concurrency={"runs": {"tag_concurrency_limits": []}})
    status, what, advice = found()["run coordinator"]
    assert status == BAD
    assert "concurrency.runs.tag_concurrency_limits would silently override" in what
    assert advice == "fix run_coordinator in dagster.yaml as reported"
    assert "daemon" in found()
    assert arctic("doctor").code == 1


@ON_SQLITE
def test_rules_that_cannot_be_used_are_found(make_queue: MakeQueue, backend: str) -> None:
    """By their path in dagster.yaml."""
    make_queue(backend, {**OURS, "config": {"rates": {"api": {"limit": 0, "per": "1m"}}}})
    status, what, _ = found()["run coordinator"]
    assert status == BAD
    assert what.startswith("run_coordinator.config.rates.api.limit: got 0")


def test_looking_neither_makes_nor_migrates_a_state_database(
    make_queue: MakeQueue, backend: str, empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is none, no pass was noted."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", empty_url)
    make_queue(backend, {**OURS, "config": {"groups": {"few": {"limit": 1}}}})
    assert "the daemon never went through the queue" in found()["run coordinator"][1]
    database = Database(empty_url)
    assert database.revision() is None
    database.close()


@ON_SQLITE
def test_a_launcher_under_which_two_runs_of_a_job_may_begin_is_a_remark(
    instance: dg.DagsterInstance, empty_url: str, arctic: Callable[..., Outcome]
) -> None:
    """Where schedules are used; it is no failure, and Docker and Kubernetes have no other."""
    database = Database(empty_url)
    database.upgrade()
    assert "run launcher" not in found()
    schedule = Schedule(name="s", target="work", trigger=on.partitions("raw/a"))
    with database.begin() as tx:
        place = locked(tx, "default", "flights")
        ScheduleStore().add(tx, place, [schedule], Origin.API, NOON)
    database.close()
    status, what, advice = found()["run launcher"]
    assert status == WARNING
    assert what == (
        "DefaultRunLauncher: a slow run that was given up may begin after all, beside the job's "
        "next attempt"
    )
    assert "class: ArcticRunLauncher" in advice
    with (Path(instance.root_directory) / "dagster.yaml").open("a") as configuration:
        configuration.write(
            "run_launcher:\n"
            "  module: arctic_orchestration.run_launcher\n"
            "  class: ArcticRunLauncher\n"
        )
    assert found()["run launcher"] == (GOOD, "ArcticRunLauncher", "")


@ON_SQLITE
@pytest.mark.parametrize(
    ("config", "reported"),
    [
        ("idel_timeout: 3m", 'Received unexpected config entry "idel_timeout" at the root.'),
        (
            "start_timeout: 2x",
            "run_launcher.config.start_timeout: got '2x', expected a duration such as 90s, 5m, 4h, "
            "1d or 1h30m",
        ),
    ],
)
def test_options_that_the_launcher_refuses_are_named(
    instance: dg.DagsterInstance, config: str, reported: str
) -> None:
    """Also one that Dagster itself refuses, with nothing around it but where to mend it."""
    with (Path(instance.root_directory) / "dagster.yaml").open("a") as configuration:
        configuration.write(
            "run_launcher:\n"
            "  module: arctic_orchestration.run_launcher\n"
            "  class: ArcticRunLauncher\n"
            f"  config: {{{config}}}\n"
        )
    advice = "fix run_launcher in dagster.yaml as reported"
    assert found()["run launcher"] == (BAD, reported, advice)


def rules() -> list[str]:
    """What is found of rules, each without its reason."""
    return [one.found.partition(":")[0] for one in examine() if one.check == "rules"]


def test_rules_that_no_run_can_be_under_are_found(ruled: MakeQueue, database_url: str) -> None:
    """By what code locations store of their jobs; a rule that a run was under is no typo."""
    few = {"limit": 1, "match": {"job": "lod_*"}}
    queue = ruled(
        groups={"few": few, "other": few, "loads": {"limit": 1, "match": {"job": "load_*"}}},
        queues={
            "all": {"match": {"job": "*"}},
            "backfills": {"match": {"tags": {"dagster/backfill": "*"}}},
            "low": {"level": 1, "match": {"asset": "raw/evnts"}},
        },
    )
    queue.iterate()
    hidden = (
        "queue backfills: all runs that it matches are in queue all, which comes first",
        "give backfills a higher level than all has",
    )
    assert found()["rules"] == (WARNING, *hidden)
    database = Database(database_url)
    with database.begin() as tx:
        place = locked(tx, "default", "flights")
        inventory = Inventory(jobs=frozenset({"load_crm"}), assets={"raw/events": None})
        store(tx, place, inventory, NOON)
    database.close()
    assert rules() == ["queue backfills", "group few", "group other", "queue low"]
    queue.submit("refund", tags={"arctic/group": "other"})
    assert rules() == ["queue backfills", "group few", "queue low"]
    queue.submit("refund", tags={"arctic/queue": "low"})
    assert rules() == ["queue backfills", "group few"]
    assert found()["rules"][1:] == (
        "group few: matches no job and no asset that code locations with schedules have, and no "
        "run was under it",
        "check its match in dagster.yaml, unless it is for a code location without schedules",
    )
