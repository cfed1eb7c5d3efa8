"""``arctic doctor``: what it finds of compaction."""

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from arctic_orchestration.cli.doctor import compaction_checks
from arctic_orchestration.cli.doctor.command import examine
from arctic_orchestration.cli.doctor.compaction_checks import compaction
from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.commit import commit_leases, orphaned_outputs
from arctic_orchestration.compaction.queue import queues
from arctic_orchestration.compaction.work import workers
from arctic_orchestration.console.findings import BAD, GOOD, WARNING
from arctic_orchestration.state.compaction_tables import compaction_attempts
from arctic_orchestration.state.freshness_tables import tasks
from arctic_orchestration_tests.cli.compacting import ON_SQLITE, SmallLake, lake
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.present import present

__all__ = ["lake"]


def found() -> dict[str, tuple[str, str, str]]:
    """Status, finding and advice by check."""
    return {f.check: (f.status, f.found, f.advice) for f in compaction()}


def serving(lake: SmallLake) -> None:
    """A worker of all queues is seen."""
    with lake.database.begin() as tx:
        one = workers.WorkerInfo(id="id-1", name="one", queues=(), parallelism=1, host="h", pid=1)
        workers.record_heartbeat(tx, one)


def later(monkeypatch: pytest.MonkeyPatch, span: timedelta) -> None:
    """Lets the doctor come later."""
    monkeypatch.setattr(compaction_checks, "utc_now", lambda: utc_now() + span)


def test_a_lake_in_which_nothing_is_in_the_way_is_well(lake: SmallLake) -> None:
    """Nothing is reported of compaction where no table is known."""
    assert list(found()) == ["lake catalog"]
    lake.table("lake.flights", 3)
    lake.table("lake.off", 3, **{"arctic.compaction.enabled": "false"})
    lake.tick()
    serving(lake)
    findings = found()
    assert findings["lake catalog"][0] == GOOD
    assert findings["lake catalog"][1].endswith(": 2 tables")
    assert findings["compaction"] == (GOOD, "2 tables, and nothing is in the way", "")
    assert len(findings) == 2


def test_refused_tables_have_a_row_each_and_the_rest_is_counted(lake: SmallLake) -> None:
    """Five are named; the command that names all of them is."""
    for number in range(7):
        lake.table(f"lake.bad{number}", 0, **{"arctic.compaction.attempts": "none"})
    lake.tick()
    refused = [one for one in compaction() if one.check.startswith("table")]
    assert [one.found.partition(":")[0] for one in refused] == [
        *(f"lake.bad{number}" for number in range(5)),
        "2 more",
    ]
    assert refused[-1].found == "2 more: arctic compaction list"


@ON_SQLITE
def test_compaction_without_dagster_is_no_failure(
    lake: SmallLake, arctic: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where nothing else is known; neither without an instance, nor where its daemon never ran."""
    lake.table("lake.flights", 3)
    lake.tick()
    serving(lake)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    without = {one.check: one for one in examine()}
    advice = "nothing for compaction with arctic compaction serve; else: "
    assert without["dagster instance"].status == WARNING
    assert without["dagster instance"].advice.startswith(advice)
    assert arctic("doctor").code == 0
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    silent = {one.check: one for one in examine()}
    assert (silent["daemon"].status, silent["dispatcher"].status) == (WARNING, WARNING)
    with lake.database.begin() as tx:
        tx.execute(sa.insert(tasks).values(task="reports/daily"))
    assert {one.check: one.status for one in examine()}["daemon"] == BAD


@ON_SQLITE
def test_looking_makes_no_catalog(
    lake: SmallLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not there is made on first use; one that is down is bad."""
    monkeypatch.setenv("ARCTIC_LAKE", str(tmp_path / "elsewhere"))
    status, finding, _ = found()["lake catalog"]
    assert (status, finding.endswith("not there yet, made on first use")) == (GOOD, True)
    assert not (tmp_path / "elsewhere").exists()
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
    assert found()["lake catalog"][0] == GOOD
    monkeypatch.setenv("ARCTIC_CATALOG", "prood")
    status, finding, _ = found()["lake catalog"]
    text = "prood is none of pyiceberg's catalogs (prod): an embedded one"
    assert (status, finding) == (WARNING, text)
    monkeypatch.delenv("ARCTIC_CATALOG")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "rest")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "http://127.0.0.1:9")
    status, finding, advice = found()["lake catalog"]
    assert (status, "did not answer, tried 5 times" in finding) == (BAD, True)
    assert "ARCTIC_CATALOG" in advice


def test_a_table_without_progress_is_found(lake: SmallLake) -> None:
    """What the committer said of it, and how its tasks can be taken back."""
    lake.table("lake.flights", 1)
    lake.tick()
    with lake.database.begin() as tx:
        lease = present(commit_leases.take_commit_lease(tx, "lake.flights", "committer"))
        commit_leases.end_commit_lease(tx, lease, trouble="access denied")
    status, finding, advice = found()["tables not committed to"]
    assert (status, finding) == (WARNING, "lake.flights: access denied")
    assert "arctic compaction tasks cancel ID" in advice


def test_tables_that_could_not_be_planned_are_counted_and_named(lake: SmallLake) -> None:
    """Until they are planned; also those whose planning never ends."""
    for name in ("lake.flights", "lake.weather"):
        lake.table(name, 1)
    lake.tick()
    for name, reason in (("lake.flights", "could not be planned: it hangs"), ("lake.weather", "")):
        with lake.database.begin() as tx:
            tables.record_check(
                tx, name, due_number=0, snapshot_id=None, reason=reason, now=utc_now()
            )
    status, finding, advice = found()["tables not planned"]
    assert (status, finding) == (WARNING, "1 table: lake.flights: it hangs")
    assert "restart" in advice


def test_trouble_is_found_with_what_to_do(lake: SmallLake) -> None:
    """A table that is refused, one that rests, and a queue that nobody serves."""
    lake.table("lake.bad", 0, **{"arctic.compaction.attempts": "none"})
    lake.table("lake.flights", 3, 2)
    lake.tick()
    lake.fail("a broken file", final=True)
    findings = found()
    status, finding, _ = findings["table refused"]
    assert (
        status,
        finding.startswith("lake.bad: arctic.compaction.attempts of lake.bad: got"),
    ) == (
        WARNING,
        True,
    )
    status, finding, advice = findings["tables resting"]
    assert (status, finding.startswith("lake.flights until 20")) == (WARNING, True)
    assert finding.endswith("a broken file")
    assert "arctic compaction wake TABLE" in advice
    assert findings["tasks in quarantine"][:2] == (WARNING, "1 of lake.flights")
    assert findings["queue default"] == (
        WARNING,
        "1 task waiting, and no worker serves the queue",
        "start one: arctic compaction worker --queue default",
    )
    # No worker is requested while nothing may be claimed: that is nothing to mend.
    day = (utc_now() - timedelta(days=2)).strftime("%a").lower()
    with lake.database.begin() as tx:
        queues.update_queue(tx, "default", hours=f"00:00-24:00 UTC {day}")
    assert "queue default" not in found()
    with lake.database.begin() as tx:
        queues.update_queue(tx, "default", hours="always")
    serving(lake)
    assert "queue default" not in found()
    with lake.database.begin() as tx:
        queues.set_state(tx, "default", queues.QueueState.PAUSED)
    assert found()["queue default"] == (
        WARNING,
        "paused, 1 task waiting",
        "if that is over: arctic compaction queues resume default",
    )


@ON_SQLITE
def test_a_lake_without_planner_is_found(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due for minutes, is not looked at."""
    lake.table("lake.flights", 2)
    lake.tick()
    with lake.database.begin() as tx:
        tables.make_due(tx, "lake.flights", "it has a new snapshot", utc_now())
    assert "compaction rounds" not in found()
    later(monkeypatch, timedelta(minutes=6))
    status, finding, advice = found()["compaction rounds"]
    assert (
        status,
        finding.startswith("no process plans or commits: lake.flights is due since 20"),
    ) == (
        BAD,
        True,
    )
    assert "arctic compaction serve" in advice


@ON_SQLITE
def test_a_table_that_stays_due_for_its_queue_is_full_is_no_trouble(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was looked at, and comes again with its check interval."""
    with lake.database.begin() as tx:
        queues.update_queue(tx, "default", capacity=1)
    lake.table("lake.flights", 3, 2)
    lake.tick()
    serving(lake)
    later(monkeypatch, timedelta(minutes=50))
    with lake.database.read() as tx:
        assert tables.table_by_name(tx, "lake.flights").due_since is not None
    assert "compaction rounds" not in found()
    later(monkeypatch, timedelta(minutes=70))
    assert found()["compaction rounds"][0] == BAD


@ON_SQLITE
def test_what_attempts_left_is_found_until_it_is_removed(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the grace time after the attempt's end is over, by the database's clock; and why."""
    lake.table("lake.flights", 3)
    lake.tick()
    serving(lake)
    claim = lake.fail("the disk is full")
    assert "left outputs" not in found()
    with lake.database.begin() as tx:
        tx.execute(sa.update(compaction_attempts).values(over_at=utc_now() - timedelta(hours=1)))
    status, finding, _ = found()["left outputs"]
    message = (
        f"outputs of 1 attempt that is over are not removed yet: {claim.directory} of lake.flights"
    )
    assert (status, finding) == (WARNING, message)
    with lake.database.begin() as tx:
        orphaned_outputs.not_cleaned(tx, claim.attempt_id, "access denied", timedelta(hours=1))
    assert found()["left outputs"][1] == f"{message}: access denied"
    with lake.database.begin() as tx:
        orphaned_outputs.not_cleaned(tx, claim.attempt_id, "access denied", timedelta(0))
    lake.tick()
    assert "left outputs" not in found()


@ON_SQLITE
def test_a_catalog_without_its_files_is_found(lake: SmallLake, tmp_path: Path) -> None:
    """It cannot be opened."""
    lake.table("lake.flights", 1)
    lake.catalog.close()
    shutil.rmtree(tmp_path / "lake")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "catalog.db").mkdir()
    status, finding, _ = found()["lake catalog"]
    assert (status, "catalog.db" in finding) == (BAD, True)
