"""``arctic consumers``: list, show, retry, reset and delete."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration import PartitionConsumer
from arctic_orchestration.clock import utc_now
from arctic_orchestration.consumers.cli import consumers as consumers_command
from arctic_orchestration.consumers.engine import ConsumerEngine
from arctic_orchestration.state.consumer_tables import consumers
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.consumers.arrivals import NOON, Log, engine_of
from arctic_orchestration_tests.consumers.dagster_assets import arrive

#: Tests of what is printed, which is the same whatever the database is.
ON_SQLITE = pytest.mark.parametrize("backend", ["sqlite"])

Command = Callable[..., Outcome]
MakeConsumer = Callable[..., ConsumerEngine]


@pytest.fixture
def log() -> Log:
    """An empty log."""
    return Log()


@pytest.fixture
def state(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The database that commands open; they know no Dagster instance."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def consumer(state: Database, log: Log) -> MakeConsumer:
    """Makes consumers in that database."""
    return lambda **spec: engine_of(state, log, **spec)


def last_read(state: Database, **ago: float) -> None:
    """All consumers have read for the last time so long ago."""
    with state.begin() as tx:
        moment = database_time(tx) - timedelta(**ago)
        tx.execute(sa.update(consumers).values(read_at=moment))


def document(outcome: Outcome) -> Any:
    """What a program reads."""
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def partitions_of(arctic: Command, *options: str) -> dict[str, dict[str, Any]]:
    """The partitions that ``show`` lists, by key."""
    shown = document(arctic("consumers", "show", "totals", "--json", *options))
    return {one["partition"]: one for one in shown["partitions"]}


def test_consumers_are_listed_with_what_is_left(
    consumer: MakeConsumer, log: Log, arctic: Command
) -> None:
    """What is done, what waits, what was given up, and for how long the oldest has waited."""
    assert arctic("consumers", "list").out == "no consumers\n"
    log.arrives("01", "02", "03", None, at=utc_now() - timedelta(hours=2))
    engine = consumer(attempts=1)
    with engine.consume(limit=2) as partitions:
        partitions.failed("02", reason="no such file")
    consumer(name="other", asset="raw/weather")
    result = arctic("consumers", "list")
    assert result.code == 0
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert lines[0] == "2 consumers"
    assert lines[1] == "consumer asset done waiting discarded lag"
    assert lines[2] == "other raw/weather 0 has not read yet"
    # By the time of the command the two hours may be some seconds longer.
    assert re.sub(r" 2h\d+s ", " 2h ", lines[3]) == (
        "totals raw/flights 1 1 1 2h discarded: arctic consumers retry; "
        "1 arrival passed over: it named no partition"
    )
    found = {
        one["consumer"]: one for one in document(arctic("consumers", "list", "--json"))["consumers"]
    }
    totals = found["totals"]
    assert (totals["acknowledged"], totals["waiting"], totals["discarded"]) == (1, 1, 1)
    assert (totals["share"], totals["passed_over"], totals["read_to_the_end"]) == (
        0.333333,
        1,
        True,
    )
    assert 7200 <= totals["lag_seconds"] < 7300
    assert found["other"]["lag_seconds"] is None


def test_what_was_not_read_yet_is_counted(
    state: Database,
    backend: str,
    dagster_instance: Callable[[str], dg.DagsterInstance],
    arctic: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker has been dead since yesterday, and twenty days have arrived."""
    instance = dagster_instance(backend)
    worker = PartitionConsumer("days", name="totals", instance=instance)
    arrive(instance, "days", "2026-01-01")
    with worker.consume() as partitions:
        assert partitions.keys == ["2026-01-01"]
    worker.close()
    arrive(instance, "days", *(f"2026-02-{day:02}" for day in range(1, 21)))
    last_read(state, days=1)
    # What was read is done. Nobody can tell more without the event log, which is reported.
    message = " ".join(arctic("consumers", "list").out.split())
    assert "totals days 1 as of the last reading, 1d" in message
    shown = " ".join(arctic("consumers", "show", "totals").out.split())
    assert "progress 1 of 1 (100.0%) what came since is not counted: DAGSTER_HOME is not" in shown
    (one,) = document(arctic("consumers", "list", "--json"))["consumers"]
    assert (one["share"], one["unread"], one["lag_seconds"]) == (1.0, None, None)
    monkeypatch.setenv("DAGSTER_HOME", instance.root_directory)
    lines = [" ".join(line.split()) for line in arctic("consumers", "list").out.splitlines()]
    assert lines[1] == "consumer asset done unread lag"
    assert re.fullmatch(r"totals days 1 20 \S+ has not read for 1d\S*", lines[2])
    shown = " ".join(arctic("consumers", "show", "totals").out.split())
    assert "progress 1 of 21 (4.8%), lag " in shown
    assert "unread 20 partitions of the event log" in shown
    one = document(arctic("consumers", "show", "totals", "--json"))
    assert (one["acknowledged"], one["unread"], one["share"]) == (1, 20, 0.047619)
    assert 0 < one["lag_seconds"] < 600
    assert "as of the last reading" in arctic("consumers", "list", "--no-log").out
    # A list reads so much of the log and no more; who is shown alone is counted in any case.
    monkeypatch.setattr(consumers_command, "EVENTS_COUNTED", 0)
    assert "as of the last reading" in arctic("consumers", "list").out
    assert "progress   1 of 21" in arctic("consumers", "show", "totals").out
    # The log of another instance says nothing.
    monkeypatch.setenv("DAGSTER_HOME", dagster_instance("sqlite").root_directory)
    assert "has another event log than it reads" in arctic("consumers", "show", "totals").out


def test_who_looks_and_finds_nothing_is_not_silent(
    consumer: MakeConsumer, state: Database, log: Log, arctic: Command
) -> None:
    """Looks are noted, of one process once a minute."""
    log.arrives("01")
    engine = consumer()
    with engine.consume():
        pass
    last_read(state, minutes=3)
    assert "as of the last reading, 3m" in arctic("consumers", "list").out
    engine.read_on()
    assert "as of" not in arctic("consumers", "list").out
    last_read(state, minutes=3)
    engine.read_on()
    assert "as of the last reading, 3m" in arctic("consumers", "list").out
    consumer().read_on()
    assert "as of" not in arctic("consumers", "list").out


@ON_SQLITE
def test_one_consumer_is_shown_with_its_partitions(
    consumer: MakeConsumer, log: Log, arctic: Command
) -> None:
    """Who has what, what rests and until when, and why something was given up."""
    log.arrives("01", "02", "03", "04")
    engine = consumer(attempts=2)
    with engine.consume(limit=2) as partitions:
        partitions.failed("02", reason="no such file")
    with engine.consume(limit=1, owner="worker 7"):
        log.arrives("03")
        engine.read_on()
        result = arctic("consumers", "show", "totals")
        found = partitions_of(arctic)
        leases = document(arctic("consumers", "show", "totals", "--json"))["leases"]
    assert result.code == 0
    text = " ".join(result.out.split())
    assert "consumer totals of raw/flights start from_beginning, registered " in text
    assert "progress 1 of 4 (25.0%)" in text
    assert "worker 7" in text
    assert "2 waiting, 1 leased" in text
    assert "1 of 2 no such file; rests until " in text
    assert "token 2; arrived again meanwhile" in text
    assert [lease["owner"] for lease in leases] == ["worker 7"]
    assert {key: one["state"] for key, one in found.items()} == {
        "02": "waiting",
        "03": "leased",
        "04": "waiting",
    }
    assert found["03"]["arrived_again"]
    assert found["02"]["delivery"] == f"totals:02:2:{int(NOON.timestamp()) * 1000}"
    assert list(partitions_of(arctic, "--state", "acknowledged")) == ["01"]
    assert list(partitions_of(arctic, "-n", "1")) == ["02"]
    assert "and 2 more: --limit 3" in arctic("consumers", "show", "totals", "-n", "1").out


def test_what_was_given_up_is_delivered_again(
    consumer: MakeConsumer, log: Log, arctic: Command
) -> None:
    """All of it, or what is named; also what was done."""
    log.arrives("01", "02", "03")
    engine = consumer(attempts=1)
    with engine.consume() as partitions:
        partitions.failed("01", "02", reason="broken")
    text = " ".join(arctic("consumers", "show", "totals").out.split())
    assert "progress 1 of 3 (33.3%), 2 given up" in text
    assert "given up 2 partitions: arctic consumers retry totals --all" in text
    result = arctic("consumers", "retry", "totals", "02", "03")
    assert result.out == "2 partitions of consumer totals wait to be delivered again\n"
    assert document(arctic("consumers", "retry", "totals", "--all", "--json")) == {
        "consumer": "totals", "partitions": ["01"]
    }  # fmt: skip
    with engine.consume() as partitions:
        assert partitions.keys == ["01", "02", "03"]


@ON_SQLITE
def test_a_consumer_starts_again(
    consumer: MakeConsumer,
    log: Log,
    arctic: Command,
    typed: Callable[[str], None],
) -> None:
    """When the person agrees."""
    log.arrives("01")
    engine = consumer()
    with engine.consume():
        pass
    reset = ("consumers", "reset", "totals", "--start", "from_beginning")
    typed("n\n")
    assert arctic(*reset).code == 1
    with engine.consume() as partitions:
        assert partitions.keys == []
    result = arctic(*reset, "--yes")
    assert result.out == "consumer totals starts again: raw/flights, from_beginning\n"
    with engine.consume() as partitions:
        assert partitions.keys == ["01"]
    shown = document(
        arctic(
            *reset[:3], "--start", "2026-01-01T00:00:00+01:00", "--asset", "raw/a", "-y", "--json"
        )
    )
    assert (shown["start"], shown["asset"]) == ("2025-12-31T23:00:00+00:00", "raw/a")


def test_a_consumer_is_deleted(
    consumer: MakeConsumer,
    log: Log,
    arctic: Command,
    typed: Callable[[str], None],
) -> None:
    """When the person agrees, who sees what goes; not while partitions of it are held."""
    log.arrives("01", "02", "03", "04")
    engine = consumer(attempts=1)
    with engine.consume(limit=2) as partitions:
        partitions.failed("02", reason="no such file")
    delete = ("consumers", "delete", "totals")
    with engine.consume(limit=1, owner="worker 7") as partitions:
        # Before anybody is asked.
        refused = arctic(*delete)
        assert (refused.code, refused.out) == (2, "")
        assert "worker 7 has partitions of consumer totals until " in refused.err
        assert arctic(*delete, "--yes").code == 2
        partitions.put_back()
    forgets = "its position and 1 acknowledged, 2 waiting, 1 discarded partitions"
    typed("n\n")
    declined = arctic(*delete)
    assert (declined.code, f"totals forgets {forgets}. Delete it?" in declined.out) == (1, True)
    assert document(arctic("consumers", "show", "totals", "--json"))["discarded"] == 1
    result = arctic(*delete, "--yes")
    assert result.out == (
        f"consumer totals is deleted, with {forgets}; the next use of the name creates it again, "
        "from its start\n"
    )
    assert arctic("consumers", "list").out == "no consumers\n"
    assert "has no consumer totals; it has: none" in arctic(*delete, "--yes").err
    consumer()
    assert document(arctic(*delete, "-y", "--json")) == {"consumer": "totals", "deleted": True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "lost"), "cluster default has no consumer lost; it has: totals"),
        (("show", "totals", "--state", "done"), "--state: got 'done', expected one of waiting,"),
        (("retry", "totals"), "KEY: got None, expected partition keys, or --all"),
        (("retry", "totals", "01", "--all"), "expected partition keys, or --all"),
        (("retry", "totals", "09"), "consumer totals knows no partition 09; nothing was changed"),
        (("reset", "totals", "--start", "from_now"), "expected --yes"),
        (("delete", "totals"), "expected --yes"),
        (("delete", "lost", "--yes"), "cluster default has no consumer lost; it has: totals"),
        (("reset", "totals", "--start", "now", "--yes"), "start: got 'now', expected from_begin"),
        # Before anybody is asked.
        (("reset", "totals", "--start", "now"), "start: got 'now', expected from_begin"),
        (("reset", "totals", "--start", "2026-01-01", "--yes"), "a moment with a time zone"),
        # What a terminal gives that sends no UTF-8.
        (("show", "a\udcff"), "cluster default has no consumer a\ufffd; it has: totals"),
        (("delete", "a\udcff", "--yes"), "cluster default has no consumer a\ufffd"),
        (("retry", "totals", "01", "a\udcff"), "knows no partition a\ufffd; nothing was changed"),
        (
            ("reset", "totals", "--start", "from_now", "--asset", "a\udcff", "--yes"),
            "asset: got 'a\\udcff', expected an asset key",
        ),
    ],
)
@ON_SQLITE
def test_what_cannot_be_is_refused_by_name(
    consumer: MakeConsumer, log: Log, arctic: Command, arguments: tuple[str, ...], message: str
) -> None:
    """One message, exit code 2, and nothing is changed."""
    log.arrives("01")
    consumer().read_on()
    before = partitions_of(arctic)
    refused = arctic("consumers", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert message in " ".join(refused.err.split())
    assert partitions_of(arctic) == before
