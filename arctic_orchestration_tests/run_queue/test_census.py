"""What waits, is in progress and ended: as values, and read from Dagster's storage."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterEvent, DagsterEventType, DagsterInstance, DagsterRun
from dagster import DagsterRunStatus as Status
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.utils import make_new_run_id

from arctic_orchestration.event_log.postgres_log import PostgresSql
from arctic_orchestration.run_queue.census import active_run, queued_run
from arctic_orchestration.run_queue.dagster.queued_runs import QueuedRuns
from arctic_orchestration.run_queue.history import History, ledger_of, lookback_of, take_census
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration_tests.run_queue.queues import NOON, Run
from arctic_orchestration_tests.templates import write_dagster_yaml

_EVENTS = {
    Status.QUEUED: DagsterEventType.RUN_ENQUEUED,
    Status.STARTED: DagsterEventType.RUN_START,
    Status.SUCCESS: DagsterEventType.RUN_SUCCESS,
    Status.FAILURE: DagsterEventType.RUN_FAILURE,
    Status.CANCELED: DagsterEventType.RUN_CANCELED,
}
RULES = Rules.parse(
    {
        "groups": {"few": {"limit": 1, "match": {"job": "load"}}},
        "rates": {"api": {"limit": 1, "per": "1m"}, "slow": {"limit": 1, "per": "1h"}},
        "intervals": {"calm": {"duration": "2h", "statuses": ["success", "failure"]}},
    }
)


ORIGIN = RemoteJobOrigin(
    RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("lake"), "__repository__"), "load"
)


class Storage:
    """A Dagster instance, what is read of its queue, and in how many statements."""

    def __init__(self, instance: DagsterInstance) -> None:
        self.instance = instance
        self.queue = QueuedRuns(instance)
        self.statements = 0
        #: statements when nothing is new: SQLite says by itself that nobody wrote to the file
        self.least = int(isinstance(self.queue._sql, PostgresSql))
        sql = self.queue._sql
        session = sql.session

        @contextmanager
        def counted() -> Iterator[Any]:
            with session() as run:

                def counting(*arguments: Any) -> Any:
                    self.statements += 1
                    return run(*arguments)

                yield counting

        sql.session = counted

    def add(self, status: Status = Status.QUEUED, **given: Any) -> str:
        run = DagsterRun(
            job_name="load",
            run_id=make_new_run_id(),
            status=status,
            remote_job_origin=ORIGIN,
            **given,
        )
        self.instance.add_run(run)
        return run.run_id

    def report(self, run_id: str, *statuses: Status) -> None:
        for status in statuses:
            event = DagsterEvent(event_type_value=_EVENTS[status].value, job_name="load")
            self.instance.report_dagster_event(event, run_id=run_id)

    def queued(self) -> list[str]:
        return [run.run_id for run in self.queue.present().queued]

    def active(self) -> list[str]:
        return [run.run_id for run in self.queue.present().active]

    def ended(self, back: timedelta = timedelta(hours=1)) -> list[str]:
        now = datetime.now(UTC)
        return [run.run_id for run in self.queue.ended_since(now - back, now)]

    def cost(self, read: Callable[[], object]) -> int:
        """How many statements a reading took."""
        self.statements = 0
        read()
        return self.statements


@pytest.fixture(scope="module")
def instances(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], DagsterInstance]]:
    """One instance a backend: to make one takes longer than a test."""
    made: dict[str, DagsterInstance] = {}
    name = f"census_{os.getpid()}"

    def instance(backend: str) -> DagsterInstance:
        if backend not in made:
            home = tmp_path_factory.mktemp("dagster_home")
            server = None
            if backend == "postgres":
                server = request.getfixturevalue("postgres_server")
                server.create_database(name)
            write_dagster_yaml(home, server=server, database_name=name)
            made[backend] = DagsterInstance.from_config(str(home))
        return made[backend]

    yield instance
    for one in made.values():
        one.dispose()
    if "postgres" in made:
        request.getfixturevalue("postgres_server").drop_database(name)


@pytest.fixture
def storage(backend: str, instances: Callable[[str], DagsterInstance]) -> Iterator[Storage]:
    made = Storage(instances(backend))
    yield made
    made.queue.close()
    made.instance.wipe()


def test_runs_are_seen_in_the_order_of_their_creation(storage: Storage) -> None:
    """Those that wait and those in progress, whatever order they began in; no others."""
    waits = [storage.add() for _ in range(3)]
    works = [storage.add(status) for status in (Status.STARTED, Status.STARTING, Status.CANCELING)]
    for status in (Status.NOT_STARTED, Status.MANAGED, Status.SUCCESS, Status.CANCELED):
        storage.add(status)
    assert (storage.queued(), storage.active()) == (waits, works)
    storage.report(waits[2], Status.STARTED)
    storage.report(waits[0], Status.STARTED)
    assert (storage.queued(), storage.active()) == ([waits[1]], [waits[0], waits[2], *works])


def test_a_run_is_seen_as_it_is_stored(storage: Storage) -> None:
    """Job, tags, status and start."""
    run_id = storage.add(tags={"team": "a"})
    (run,) = storage.queue.present().queued
    assert (run.job, run.tags["team"], run.dagster_status) == ("load", "a", "QUEUED")
    assert (run.started_at, run.ended_at) == (None, None)
    before = datetime.now(UTC)
    storage.report(run_id, Status.STARTED)
    (run,) = storage.queue.present().active
    assert run.started_at is not None
    assert before - timedelta(seconds=1) <= run.started_at <= datetime.now(UTC)


def test_a_change_of_tags_is_seen(storage: Storage) -> None:
    """Though nothing else of the run changed; again and again, and of runs in progress, too."""
    run_id, other = storage.add(), storage.add(Status.STARTED)
    for turn in ("waiting", "granted", "waiting"):
        storage.instance.add_run_tags(run_id, {"arctic/rate.api": turn})
        storage.instance.add_run_tags(other, {"arctic/rate.api": turn})
        present = storage.queue.present()
        assert [run.tags["arctic/rate.api"] for run in present.queued] == [turn]
        assert [run.tags["arctic/rate.api"] for run in present.active] == [turn]


def test_nothing_new_costs_one_statement_at_most(storage: Storage) -> None:
    """However many runs wait; what changed costs one more. Runs that are kept are the same."""
    run_ids = [storage.add() for _ in range(20)]
    assert storage.cost(storage.queue.present) == 2
    before = storage.queue.present().queued
    assert storage.cost(storage.queue.present) == storage.least
    assert all(one is other for one, other in zip(before, storage.queue.present().queued,
                                                  strict=True))  # fmt: skip
    storage.instance.add_run_tags(run_ids[3], {"a": "b"})
    assert storage.cost(storage.queue.present) == 2
    changed = [one is not other for one, other in zip(before, storage.queue.present().queued,
                                                      strict=True)]  # fmt: skip
    assert changed == [n == 3 for n in range(20)]
    assert storage.cost(storage.ended) == 1
    assert storage.cost(storage.ended) == storage.least


def test_a_run_that_ended_is_seen_once(storage: Storage) -> None:
    """By the first reading after its end, and never in progress and ended in none."""
    first, second = storage.add(), storage.add()
    storage.report(first, Status.STARTED, Status.SUCCESS)
    storage.report(second, Status.STARTED)
    assert (storage.ended(), storage.active(), storage.queued()) == ([first], [second], [])
    storage.report(second, Status.FAILURE)
    storage.instance.add_run_tags(first, {"a": "b"})
    assert storage.ended() == [second]
    assert storage.active() == []
    assert storage.ended() == []
    assert storage.cost(storage.ended) == storage.least


def test_a_run_that_never_started_did_not_end_either(storage: Storage) -> None:
    """Canceled in the queue, or failed to launch: no rate and no interval counts it."""
    canceled, failed = storage.add(), storage.add()
    storage.report(canceled, Status.CANCELED)
    storage.report(failed, Status.FAILURE)
    assert storage.ended() == []


def test_what_ended_too_long_ago_is_not_seen(storage: Storage) -> None:
    """Also in the first reading; a look back of a moment costs no more than a long one."""
    for _ in range(3):
        storage.report(storage.add(), Status.STARTED, Status.SUCCESS)
    assert storage.ended(timedelta(microseconds=1)) == []
    assert storage.ended(timedelta(microseconds=1)) == []
    assert storage.cost(lambda: storage.ended(timedelta(microseconds=1))) == storage.least


def test_a_file_that_was_replaced_by_another_is_read(tmp_path: Path) -> None:
    """As after a backup was put back: the new file counts its changes again."""
    (tmp_path / "other").mkdir()
    with DagsterInstance.local_temp(str(tmp_path)) as instance:
        with DagsterInstance.local_temp(str(tmp_path / "other")) as other:
            Storage(other).add()
        storage = Storage(instance)
        assert storage.queued() == []
        assert storage.cost(storage.queue.present) == 0
        file = storage.queue._sql.path
        for end in ("", "-wal", "-shm"):
            file.with_name(file.name + end).unlink(missing_ok=True)
        (tmp_path / "other" / file.relative_to(tmp_path)).rename(file)
        assert len(storage.queued()) == 1
        storage.queue.close()


def test_a_run_that_is_deleted_is_gone(storage: Storage) -> None:
    """From the next reading on."""
    first, second = storage.add(), storage.add()
    assert storage.queued() == [first, second]
    storage.instance.delete_run(first)
    assert storage.queued() == [second]


def test_a_run_is_found_by_the_beginning_of_its_id(storage: Storage) -> None:
    """Of those that wait or are in progress; at most three."""
    run_id = storage.add()
    assert storage.queue.ids_like(run_id[:20]) == [run_id]
    assert storage.queue.ids_like("nobody") == []
    for _ in range(4):
        storage.add()
    assert len(storage.queue.ids_like("")) == 3


def test_a_census_of_a_storage_has_all_of_it(storage: Storage) -> None:
    """For who looks once."""
    tags = {"arctic/rate.api": "granted", "arctic/interval.calm": "load"}
    waits, works, ended = storage.add(), storage.add(), storage.add(tags=tags)
    storage.report(works, Status.STARTED)
    storage.report(ended, Status.STARTED, Status.SUCCESS)
    census = take_census(storage.queue, RULES, frozenset(), datetime.now(UTC))
    assert [run.run_id for run in census.queued] == [waits]
    assert [run.run_id for run in census.active] == [works]
    assert census.active[0].standing.groups == ("few",)
    assert len(census.ledger.starts["api"]) == 1
    assert census.ledger.ends.keys() == {("calm", "load")}


# As values.


@pytest.mark.parametrize(
    ("config", "back"),
    [
        ({}, None),
        ({"groups": {"a": {"limit": 1}}}, None),
        ({"rates": {"a": {"limit": 1, "per": "1m"}}}, timedelta(minutes=1)),
        ({"rates": {"a": {"limit": 1, "per": "1m"}}, "intervals": {"b": {"duration": "1h"}}},
         timedelta(hours=1)),
    ],
)  # fmt: skip
def test_one_looks_back_as_far_as_rates_and_intervals_matter(
    config: dict[str, Any], back: timedelta | None
) -> None:
    """Where there are none, nothing that ended is read at all."""
    assert lookback_of(Rules.parse(config)) == back


@pytest.mark.parametrize(
    ("tag", "number"),
    [({}, 0), ({"dagster/priority": "7"}, 7), ({"dagster/priority": "-3"}, -3),
     ({"dagster/priority": "high"}, 0), ({"dagster/priority": " 5 "}, 5)],
)  # fmt: skip
def test_a_queued_run_is_sorted_as_dagster_sorts_it(tag: dict[str, str], number: int) -> None:
    """What is no number counts as none."""
    assert queued_run(Run(run_id="r", tags=tag), frozenset()).priority == number


def test_a_queued_run_keeps_the_tags_that_gates_look_at() -> None:
    """In one order, so that runs alike are found alike; not those that each run has again."""
    tags = {"team": "a", "owner": "b", "arctic/window.night": "w", "arctic/group.few": "g",
            "arctic/level": "1", ".dagster/arctic_queued_at": "t", "arctic/job": "17",
            "dagster/priority": "5", "arctic/queue": "q", "arctic/rate.api": "waiting",
            "arctic/wait": "its turn"}  # fmt: skip
    marks = queued_run(Run(run_id="r", tags=tags), frozenset({"team"})).marks
    assert marks.pairs == (
        ("arctic/group.few", "g"), ("arctic/queue", "q"), ("arctic/rate.api", "waiting"),
        ("arctic/window.night", "w"), ("team", "a"),
    )  # fmt: skip
    backwards = dict(reversed(tags.items()))
    assert queued_run(Run(run_id="r", tags=backwards), frozenset({"team"})).marks is marks
    assert (marks.queue, marks.turns) == ("q", (("arctic/rate.api", "waiting"),))
    heeded = queued_run(Run(run_id="r", tags=tags), frozenset({"arctic/level"})).marks
    assert ("arctic/level", "1") in heeded.pairs


def test_runs_that_differ_in_no_tag_of_a_rule_are_alike() -> None:
    """Runs of a consumer and of tasks each have tags of their own, which no gate evaluates."""
    grouped = {"arctic/group.few": "g", "arctic/queue": "q"}
    runs = [
        Run(
            run_id=f"{n}",
            tags={**grouped, "arctic/partition": f"p{n}", "arctic/submission": f"{n}"},
        )
        for n in range(3)
    ]
    assert len({queued_run(run, frozenset()).marks for run in runs}) == 1


def test_a_ledger_has_starts_by_rate_and_the_last_end_by_interval_and_program() -> None:
    """Ends in other statuses, of rules that are gone and of runs without the tag do not count."""

    def ended(n: int, status: str, minutes: int, program: str = "p", **tags: str) -> Run:
        given = {"arctic/interval.calm": program, "arctic/rate.slow": "granted", **tags}
        at = NOON - timedelta(minutes=minutes)
        started_at = at - timedelta(minutes=1)
        return Run(run_id=f"{n}", tags=given, dagster_status=status, started_at=started_at,
                   ended_at=at)  # fmt: skip

    runs = [
        ended(1, "SUCCESS", 30), ended(2, "FAILURE", 20), ended(3, "CANCELED", 10),
        ended(4, "SUCCESS", 5, "q"), ended(5, "SUCCESS", 6, "q"),
        ended(6, "SUCCESS", 1, "r", **{"arctic/interval.gone": "p", "arctic/rate.gone": "granted"}),
        Run(run_id="7", dagster_status="SUCCESS", started_at=NOON, ended_at=NOON),
    ]  # fmt: skip
    ledger = ledger_of(runs, [], RULES, NOON)
    assert ledger.ends == {
        ("calm", "p"): NOON - timedelta(minutes=20),
        ("calm", "q"): NOON - timedelta(minutes=5),
        ("calm", "r"): NOON - timedelta(minutes=1),
    }
    minutes = [31, 21, 11, 7, 6, 2]
    assert ledger.starts == {"slow": [NOON - timedelta(minutes=n) for n in minutes]}


def test_a_run_in_progress_counts_for_the_rates_that_it_stands_under() -> None:
    """One that is being started as started now, and one that ended meanwhile once."""
    tags = {"arctic/rate.api": "granted", "arctic/rate.slow": "granted"}
    at = NOON - timedelta(seconds=5)
    started = Run(run_id="1", tags=tags, dagster_status="STARTED", started_at=at)
    starting = Run(run_id="2", tags=tags, dagster_status="STARTING")
    active = [active_run(run, RULES) for run in (started, starting)]
    ended = Run(run_id="1", tags=tags, dagster_status="SUCCESS", started_at=at, ended_at=NOON)
    ledger = ledger_of([ended], active, RULES, NOON)
    assert ledger.starts == {"api": [at, NOON], "slow": [at, NOON]}


def test_the_program_of_a_run_is_that_of_its_tag() -> None:
    """It was named when the run was submitted; without the tag, by what it runs."""
    tagged = active_run(Run(run_id="r", tags={"arctic/interval.calm": "other"}), RULES)
    assert tagged.program_under("arctic/interval.calm") == "other"
    assert tagged.program_under("arctic/program.few") == "lake: load"


def test_what_ended_is_known_from_pass_to_pass_until_no_rule_needs_it() -> None:
    """One that is taken twice counts once; of a program, a later end takes the earlier's place."""
    tags = {"arctic/rate.api": "granted", "arctic/interval.calm": "p"}

    def ended(run_id: str, at: datetime) -> Run:
        return Run(run_id=run_id, tags=tags, dagster_status="SUCCESS", started_at=at, ended_at=at)

    history = History(RULES)
    second, hour = timedelta(seconds=1), timedelta(hours=1)
    history.add([ended("1", NOON), ended("2", NOON - second)])
    history.add([ended("1", NOON)])
    for _ in range(2):
        ledger = history.ledger([], NOON)
        assert ledger.starts["api"] == [NOON - second, NOON]
        assert ledger.ends == {("calm", "p"): NOON}
    # A minute of the rate, two hours of the interval; each to the moment.
    assert history.ledger([], NOON + 59 * second).starts["api"] == [NOON]
    assert history.ledger([], NOON + 60 * second).starts["api"] == []
    assert history.ledger([], NOON + 2 * hour - second).ends == {("calm", "p"): NOON}
    assert history.ledger([], NOON + 2 * hour).ends == {}
