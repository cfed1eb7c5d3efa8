"""``arctic compaction tick`` and ``serve``: rounds of the planner and the committer."""

import json
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from arctic_orchestration.compaction.cli.context import Opened
from arctic_orchestration.compaction.cli.serve import Service
from arctic_orchestration.compaction.commit import records
from arctic_orchestration.compaction.commit.cleaner import CleaningCounts
from arctic_orchestration.compaction.commit.committer import CommitCounts
from arctic_orchestration.compaction.planning.catalog_planner import PlanningCounts
from arctic_orchestration.compaction.planning.scope import Scope
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.service import CompactionCounts, CompactionService
from arctic_orchestration.compaction.upkeep import UpkeepCounts
from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.cli.compacting import ON_SQLITE, SmallLake, arctic_process, lake
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.compaction.test_records import recorded

__all__ = ["lake"]

Command = Callable[..., Outcome]
RUN = ("--tables", "*", "--mode", "run")


def test_a_round_says_what_it_did(lake: SmallLake, arctic: Command) -> None:
    """For people what happened, for programs all counts."""
    lake.table("lake.flights", 3, 2)
    lake.table("lake.bad", 0, **{"arctic.compaction.attempts": "none"})
    result = arctic("compaction", "tick", *RUN)
    assert (result.code, result.out) == (0, "2 tasks offered, 1 table refused\n")
    assert len(lake.tasks(TaskState.PLANNED)) == 2
    assert arctic("compaction", "tick", *RUN).out == "nothing was to be done\n"
    counts = json.loads(arctic("compaction", "tick", *RUN, "--json").out)
    assert (counts["lost"], counts["committed"]["snapshots"]) == (0, 0)
    assert counts["planned"]["tables"] == 2


@ON_SQLITE
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_rounds_go_on_until_a_stop_signal(lake: SmallLake, number: signal.Signals) -> None:
    """First it plans what there is; then it ends at once, whatever its pause."""
    lake.table("lake.flights", 3)
    with arctic_process("compaction", "serve", *RUN, "--every", "1h", "--json") as process:
        first = json.loads(process.until(lambda line: '"round"' in line))
        assert first["planned"]["offered"] == 1
        assert [task.table for task in lake.tasks(TaskState.PLANNED)] == ["lake.flights"]
        process.send_signal(number)
        last = json.loads(process.rest()[-1])
        assert (last["event"], process.ended()) == ("ended", 0)


@ON_SQLITE
def test_a_pause_that_is_none_is_refused(lake: SmallLake, arctic: Command) -> None:
    """It would leave nobody else a turn."""
    refused = arctic("compaction", "serve", *RUN, "--every", "0s")
    assert refused.code == 2
    assert "--every: got '0s', expected a duration longer than 0s" in refused.err


@pytest.mark.parametrize(("options", "left"), [([], [1, 3]), (["--retention", "2d"], [1])])
def test_records_are_kept_for_the_given_retention(
    lake: SmallLake, arctic: Command, options: list[str], left: list[int]
) -> None:
    """Of one and three days: both within the thirty of the default, one within two."""
    now = datetime.now(UTC)
    with lake.database.begin() as tx:
        for days in (1, 3):
            records.write(tx, recorded("lake.a", days, now - timedelta(days=days)))
    assert arctic("compaction", "tick", *RUN, *options).code == 0
    with lake.database.read() as tx:
        assert [one.snapshot_id for one in records.records(tx)] == left


@ON_SQLITE
@pytest.mark.parametrize("command", ["tick", "serve"])
def test_a_retention_of_less_than_a_day_is_refused(
    lake: SmallLake, arctic: Command, command: str
) -> None:
    refused = arctic("compaction", command, *RUN, "--retention", "23h")
    assert refused.code == 2
    assert "--retention: got '23h', expected a duration of at least 1d" in refused.err


@ON_SQLITE
def test_an_empty_catalog_is_no_mistake(lake: SmallLake, arctic: Command) -> None:
    """Its tables may come later."""
    result = arctic("compaction", "tick", *RUN)
    assert (result.code, result.out) == (0, "nothing was to be done\n")


class ThreeRounds:
    """An engine that ends the service with its third round."""

    def __init__(self, engine: CompactionService) -> None:
        self.engine = engine
        self.rounds = 0
        self.service: Service | None = None

    def tick(self, now: datetime) -> CompactionCounts:
        self.rounds += 1
        if self.rounds == 3 and self.service is not None:
            self.service.end()
        return self.engine.tick(now)


@ON_SQLITE
@pytest.mark.parametrize("mode", ["observe", "run"])
def test_patterns_that_match_no_table_are_named(
    lake: SmallLake, arctic: Command, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    """Once while they stay the same, and in each single round."""
    lake.table("lake.flights", 1)
    patterns = ("--tables", "lake.fl*", "--tables", "lake.flihgts", "--tables", "laek.*")
    unmatched = ["lake.flihgts", "laek.*"]
    result = arctic("compaction", "tick", *patterns, "--mode", mode)
    assert result.out.splitlines()[-1] == "--tables: no table matches lake.flihgts, laek.*"
    document = json.loads(arctic("compaction", "tick", *patterns, "--mode", mode, "--json").out)
    assert document["unmatched"] == unmatched
    scope = Scope.of(patterns[1::2], mode)
    engine = ThreeRounds(CompactionService(lake.database, lake.catalog, scope=scope))
    state = Opened(Settings.from_environment(), lake.database)
    engine.service = Service(state, engine, as_json=True, scope=scope)
    engine.service.run(timedelta(milliseconds=1))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["tables"] for line in lines if line["event"] == "unmatched"] == [unmatched]


class Unsteady:
    """An engine whose first three rounds fail, two of them in the same way."""

    def __init__(self) -> None:
        self.troubles = ["no answer", "no answer", "the disk is full"]
        self.service: Service | None = None

    def tick(self, now: datetime) -> CompactionCounts:
        if self.troubles:
            raise DatabaseUnavailable(self.troubles.pop(0))
        assert self.service is not None
        self.service.end()
        return CompactionCounts(
            lost=2,
            committed=CommitCounts(),
            planned=PlanningCounts(),
            cleaned=CleaningCounts(),
            upkeep=UpkeepCounts(),
        )


@ON_SQLITE
def test_an_error_is_reported_once_and_so_is_its_end(
    lake: SmallLake, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rounds go on; nobody reads the same line every few seconds."""
    engine = Unsteady()
    state = Opened(Settings.from_environment(), lake.database)
    engine.service = Service(state, engine, as_json=True)
    engine.service.run(timedelta(milliseconds=1))
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["event"], line.get("text")) for line in events] == [
        ("began", None),
        ("trouble", "no answer"),
        ("trouble", "the disk is full"),
        ("well", None),
        ("round", None),
        ("ended", None),
    ]
    assert events[4]["lost"] == 2


@pytest.mark.parametrize("command", ["tick", "serve"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--tables: got (), expected names or patterns of tables, one or more"),
        (["--tables", "*", "--mode", "watch"], "--mode: got 'watch', expected observe or run"),
    ],
)
@ON_SQLITE
def test_the_tables_and_the_mode_are_required(
    lake: SmallLake, arctic: Command, command: str, options: list[str], message: str
) -> None:
    """Nothing is planned by accident."""
    refused = arctic("compaction", command, *options)
    assert refused.code == 2
    assert message in " ".join(refused.err.split())


def test_without_a_mode_tables_are_only_observed(lake: SmallLake, arctic: Command) -> None:
    """The plan is shown; no task is offered, and a table that no pattern matches is left alone."""
    lake.table("lake.flights", 3, 2)
    lake.table("lake.other", 3)
    result = arctic("compaction", "tick", "--tables", "lake.f*")
    assert (result.code, result.out) == (0, "2 tasks would be offered (--mode run)\n")
    assert lake.tasks() == []
    status = json.loads(arctic("compaction", "list", "--json").out)
    observed = {one["table"]: one["observed"] for one in status["tables"]}
    assert observed == {"lake.flights": "6 of 6 files in 2 tasks", "lake.other": None}
    assert arctic("compaction", "tick", *RUN).out == "3 tasks offered\n"
    status = json.loads(arctic("compaction", "list", "--json").out)
    assert [one["observed"] for one in status["tables"]] == [None, None]
