"""``arctic consumers``: list, show, retry and reset."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from arctic_orchestration.clock import utc_now
from arctic_orchestration.consuming.engine import ConsumerEngine
from arctic_orchestration.database.engine import Database
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.consuming.arrivals import Log, engine_of

#: Tests of what is printed, which is the same whatever the database is.
ON_SQLITE = pytest.mark.parametrize("backend", ["sqlite"])

Command = Callable[..., Outcome]
MakeConsumer = Callable[..., ConsumerEngine]


@pytest.fixture
def log() -> Log:
    """An empty log."""
    return Log()


@pytest.fixture
def consumer(
    database_url: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeConsumer]:
    """Makes consumers in the database that commands open."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    database = Database(database_url)
    database.upgrade()
    yield lambda **spec: engine_of(database, log, **spec)
    database.close()


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
    said = arctic("consumers", "list")
    assert said.code == 0
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert lines[0] == "2 consumers"
    assert lines[1] == "consumer asset done waiting discarded lag"
    assert lines[2] == "other raw/weather 0 has not read yet"
    assert lines[3] == (
        "totals raw/flights 1 1 1 2h discarded: arctic consumers retry; "
        "1 arrival passed over: it named no partition"
    )
    found = {
        one["consumer"]: one for one in document(arctic("consumers", "list", "--json"))["consumers"]
    }
    totals = found["totals"]
    assert (totals["acknowledged"], totals["waiting"], totals["discarded"]) == (1, 1, 1)
    assert (totals["share"], totals["passed_over"], totals["read_to_the_end"]) == (0.5, 1, True)
    assert 7200 <= totals["lag_seconds"] < 7300
    assert found["other"]["lag_seconds"] is None


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
        said = arctic("consumers", "show", "totals")
        found = partitions_of(arctic)
        leases = document(arctic("consumers", "show", "totals", "--json"))["leases"]
    assert said.code == 0
    text = " ".join(said.out.split())
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
    assert found["02"]["delivery"] == "totals:02:2"
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
    said = arctic("consumers", "retry", "totals", "02", "03")
    assert said.out == "2 partitions of consumer totals wait to be delivered again\n"
    assert document(arctic("consumers", "retry", "totals", "--all", "--json")) == {
        "consumer": "totals", "partitions": ["01"]
    }  # fmt: skip
    with engine.consume() as partitions:
        assert partitions.keys == ["01", "02", "03"]


@ON_SQLITE
def test_a_consumer_begins_anew(
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
    said = arctic(*reset, "--yes")
    assert said.out == "consumer totals begins anew: raw/flights, from_beginning\n"
    with engine.consume() as partitions:
        assert partitions.keys == ["01"]
    shown = document(
        arctic(
            *reset[:3], "--start", "2026-01-01T00:00:00+01:00", "--asset", "raw/a", "-y", "--json"
        )
    )
    assert (shown["start"], shown["asset"]) == ("2025-12-31T23:00:00+00:00", "raw/a")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "lost"), "cluster default has no consumer lost; it has: totals"),
        (("show", "totals", "--state", "done"), "--state: got 'done', expected one of waiting,"),
        (("retry", "totals"), "KEY: got None, expected partition keys, or --all"),
        (("retry", "totals", "01", "--all"), "expected partition keys, or --all"),
        (("retry", "totals", "09"), "consumer totals knows no partition 09; nothing was changed"),
        (("reset", "totals", "--start", "from_now"), "--yes: got None"),
        (("reset", "totals", "--start", "now", "--yes"), "start: got 'now', expected from_begin"),
        (("reset", "totals", "--start", "2026-01-01", "--yes"), "a moment with a time zone"),
    ],
)
@ON_SQLITE
def test_what_cannot_be_is_refused_by_name(
    consumer: MakeConsumer, log: Log, arctic: Command, arguments: tuple[str, ...], said: str
) -> None:
    """One message, exit code 2, and nothing is changed."""
    log.arrives("01")
    consumer().read_on()
    before = partitions_of(arctic)
    refused = arctic("consumers", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert said in " ".join(refused.err.split())
    assert partitions_of(arctic) == before
