"""A consumer that begins again, and where it begins and ends."""

from collections.abc import Callable
from datetime import datetime, timedelta

import dagster as dg
import pytest
from typer.testing import CliRunner

from arctic_orchestration import PartitionConsumer
from arctic_orchestration.consumers import control, store
from arctic_orchestration.consumers.cli.consumers import app
from arctic_orchestration.consumers.control import LogEnd
from arctic_orchestration.consumers.dagster.event_source import end_of_log
from arctic_orchestration.consumers.engine import ConsumerEngine
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.consumers.arrivals import NOON, Log, engine_of
from arctic_orchestration_tests.consumers.dagster_assets import arrive, settings_of
from arctic_orchestration_tests.standing_clock import Clock

MINUTE = timedelta(minutes=1)


def taken(engine: ConsumerEngine | PartitionConsumer) -> list[str]:
    """Takes and acknowledges; the keys."""
    with engine.consume() as partitions:
        return partitions.keys


def reset(
    state: Database, engine: ConsumerEngine, start: str | datetime, end: LogEnd | None = None
) -> None:
    """What a person does."""
    with state.begin() as tx:
        control.reset(tx, engine.seen(tx), start, engine.time(tx), end=end)


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("is_named", [True, False])
def test_the_command_queries_the_named_instance(
    state: Database,
    backend: str,
    database_url: str,
    dagster_instance: Callable[[str], dg.DagsterInstance],
    monkeypatch: pytest.MonkeyPatch,
    is_named: bool,
) -> None:
    """Where ``DAGSTER_HOME`` names none, the moment is what it begins with."""
    instance = dagster_instance(backend)
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    if is_named:
        monkeypatch.setenv("DAGSTER_HOME", instance.root_directory)
    following = PartitionConsumer(
        "days", name="totals", instance=instance, settings=settings_of(database_url)
    )
    arrive(instance, "days", "2026-01-01")
    following.register()
    done = CliRunner().invoke(app, ["reset", "totals", "--start", "from_now", "--yes"])
    assert done.exit_code == 0
    with state.read() as tx:
        one = store.by_name(tx, "default", "totals")
    assert (one.position is not None, one.since is None) == (is_named, is_named)
    arrive(instance, "days", "2026-01-02")
    assert taken(following) == ["2026-01-02"]
    following.close()


@pytest.mark.parametrize("known", ["the end", "another log", "no end"])
def test_from_now_goes_by_the_end_of_the_log_where_it_is_known(
    state: Database, log: Log, clock: Clock, known: str
) -> None:
    """A writer whose clock is behind by two seconds is heard; by timestamps it is not."""
    engine = engine_of(state, log, clock)
    log.arrives("01")
    assert taken(engine) == ["01"]
    log.arrives("02")
    clock.passes(minutes=5)
    ends = {
        "the end": LogEnd(storage_id="storage", position=log.end().to_json()),
        "another log": LogEnd(storage_id="other", position=log.end().to_json()),
    }
    reset(state, engine, "from_now", ends.get(known))
    log.arrives("03", at=clock.now - timedelta(seconds=2))
    log.arrives("04", at=clock.now)
    assert taken(engine) == (["03", "04"] if known == "the end" else ["04"])


def test_the_end_of_the_log_is_that_of_dagsters_instance(
    state: Database,
    backend: str,
    database_url: str,
    dagster_instance: Callable[[str], dg.DagsterInstance],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was there is left out, what comes later is not, whatever the clocks say."""
    instance = dagster_instance(backend)
    monkeypatch.setenv("DAGSTER_HOME", instance.root_directory)
    following = PartitionConsumer(
        "days", name="totals", instance=instance, settings=settings_of(database_url)
    )
    arrive(instance, "days", "2026-01-01")
    assert taken(following) == ["2026-01-01"]
    arrive(instance, "days", "2026-01-02")
    end = end_of_log()
    arrive(instance, "days", "2026-01-03")
    with state.begin() as tx:
        engine = following.engine_on(instance, following._log)  # type: ignore[arg-type]
        # By the moments this would be tomorrow.
        tomorrow = database_time(tx) + timedelta(days=1)
        control.reset(tx, engine.seen(tx), "from_now", tomorrow, end=end)
    assert taken(following) == ["2026-01-03"]
    following.close()


def test_the_end_moves_no_further_once_something_was_read(
    state: Database, log: Log, clock: Clock
) -> None:
    """What lay between the two ends was passed over; an earlier end loses nothing."""
    for minute in range(4):
        log.arrives(f"{minute:02}", at=NOON + minute * MINUTE)
    assert engine_of(state, log, clock, until=NOON + MINUTE).spec.until == NOON + MINUTE
    # Nothing was read yet.
    engine = engine_of(state, log, clock, until=NOON + 2 * MINUTE)
    assert taken(engine) == ["00", "01"]
    for later in (NOON + 3 * MINUTE, None):
        with pytest.raises(InvalidInput, match=r"until: got .*12:02:00\+00:00 or earlier: what"):
            engine_of(state, log, clock, until=later)
    reset(state, engine, "from_beginning")
    assert taken(engine_of(state, log, clock, until=NOON + 3 * MINUTE)) == ["00", "01", "02"]
    assert taken(engine_of(state, log, clock, until=NOON + MINUTE)) == []


def test_a_start_after_the_end_is_refused(state: Database, log: Log, clock: Clock) -> None:
    """It would take nothing; nothing was changed."""
    log.arrives("01", "02")
    engine = engine_of(state, log, clock, until=NOON + MINUTE)
    assert taken(engine) == ["01", "02"]
    clock.passes(minutes=1)
    for start in (NOON + MINUTE, "from_now"):
        with pytest.raises(InvalidInput, match="a start before 2026-01-01T12:01:00"):
            reset(state, engine, start)
    assert engine.progress().acknowledged == 2
    reset(state, engine, NOON)
    assert taken(engine) == ["01", "02"]
