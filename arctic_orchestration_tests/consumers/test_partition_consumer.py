"""``PartitionConsumer`` on real Dagster instances: the uses it is made for."""

import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration import PartitionConsumer
from arctic_orchestration.clock import utc_now
from arctic_orchestration.consumers.dagster.event_source import log_of
from arctic_orchestration.errors import (
    ConfigurationError,
    InvalidDefinition,
    InvalidInput,
    SchemaTooNew,
)
from arctic_orchestration.state import database as database_module
from arctic_orchestration.state.database import SCHEMA_REVISION, Database
from arctic_orchestration.state.migrations import VERSION_TABLE
from arctic_orchestration_tests.consumers.dagster_assets import (
    FEEDS,
    MakeConsumer,
    arrive,
    days,
    feeds,
)
from arctic_orchestration_tests.patience import until

#: Tests of what is the same whatever the storages are.
ON_SQLITE = pytest.mark.parametrize("backend", ["sqlite"])


def test_a_periodic_run_takes_all_that_is_new(
    instance: dg.DagsterInstance, consumer: MakeConsumer
) -> None:
    """Real runs materialize three days; each look takes what came since the one before."""
    for day in ("2026-01-01", "2026-01-02"):
        assert dg.materialize([days], partition_key=day, instance=instance).success

    def run() -> list[str]:
        with consumer(days).consume() as partitions:
            return partitions.keys

    assert run() == ["2026-01-01", "2026-01-02"]
    assert run() == []
    arrive(instance, "days", "2026-01-03", "2026-01-01")
    assert run() == ["2026-01-03", "2026-01-01"]
    assert run() == []


def test_a_worker_looks_continuously(instance: dg.DagsterInstance, consumer: MakeConsumer) -> None:
    """It waits for what is not there yet, and ends when it is stopped."""
    worker, done, stop = consumer(), [], threading.Event()

    def work() -> None:
        poll = timedelta(milliseconds=50)
        while not stop.is_set():
            with worker.consume(limit=2, wait=timedelta(seconds=1), poll=poll) as partitions:
                done.extend(partitions.keys)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        arrive(instance, "days", "2026-01-01", "2026-01-02", "2026-01-03")
        until(lambda: len(done) == 3, "the worker has done what there was")
        arrive(instance, "days", "2026-01-04")
        until(lambda: len(done) == 4, "the worker has done what came meanwhile")
    finally:
        stop.set()
        thread.join()
    assert done == ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"]


def test_a_run_catches_up_while_more_arrives(
    instance: dg.DagsterInstance, consumer: MakeConsumer
) -> None:
    """The share of what is done grows, falls when more comes, and ends at one; the lag ends."""
    began = utc_now()
    arrive(instance, "days", *(f"2026-01-{day:02}" for day in range(1, 9)))
    catching_up = consumer(working_set=3)
    before = catching_up.progress()
    assert (before.acknowledged, before.left, before.share) == (0, 8, 0)
    assert before.oldest_at is not None
    assert before.oldest_at >= began
    shares, more = [], iter(["2026-02-01", "2026-02-02"])
    while not catching_up.progress().caught_up:
        with catching_up.consume(limit=2) as partitions:
            assert len(partitions) == 2
            for key in more:
                arrive(instance, "days", key)
                break
        shares.append(round(catching_up.progress().share, 2))
    # 2 of 9, then of 10.
    assert shares == [0.22, 0.4, 0.6, 0.8, 1.0]
    after = catching_up.progress()
    assert (after.lag, after.oldest_at, str(after)) == (None, None, "10 of 10 (100.0%)")


def test_a_run_that_has_begun_acknowledges_in_a_database_that_was_upgraded_meanwhile(
    instance: dg.DagsterInstance, consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sensor of its version requests no more runs."""
    monkeypatch.setattr(database_module, "_CHECK_SECONDS", 0)
    arrive(instance, "days", "2026-01-01")
    in_run = consumer()
    other = Database(in_run.settings.database_url)

    def set_revision(revision: str) -> None:
        with other.begin() as tx:
            tx.execute(sa.text(f"update {VERSION_TABLE} set version_num = '{revision}'"))

    with in_run.consume() as partitions:
        assert partitions.keys == ["2026-01-01"]
        set_revision("9999")
    assert in_run.progress().acknowledged == 1
    set_revision(SCHEMA_REVISION)
    with closing(log_of(instance, [in_run.spec.asset])) as log:
        of_sensor = in_run.engine_on(instance, log)
        set_revision("9999")
        with pytest.raises(SchemaTooNew):
            of_sensor.register()
        of_sensor.database.close()
    other.close()


def test_one_follows_the_present_while_another_catches_up_on_the_past(
    instance: dg.DagsterInstance, consumer: MakeConsumer
) -> None:
    """A moment parts them: each arrival is in one of the two."""
    arrive(instance, "days", "2026-01-01", "2026-01-02")
    moment = utc_now()
    arrive(instance, "days", "2026-01-03", "2026-01-01")
    present, past = consumer(start=moment, name="present"), consumer(until=moment, name="past")
    with present.consume() as partitions:
        assert partitions.keys == ["2026-01-03", "2026-01-01"]
    with past.consume() as partitions:
        assert partitions.keys == ["2026-01-01", "2026-01-02"]
        assert all(one.at < moment for one in partitions)


def test_from_now_begins_where_it_was_registered(
    instance: dg.DagsterInstance, consumer: MakeConsumer
) -> None:
    """And goes on from there, whatever the code says later."""
    arrive(instance, "days", "2026-01-01")
    consumer(start="from_now").register()
    arrive(instance, "days", "2026-01-02")
    with consumer(start="from_now").consume() as partitions:
        assert partitions.keys == ["2026-01-02"]
    with consumer(start="from_beginning").consume() as partitions:
        assert partitions.keys == []


@ON_SQLITE
def test_each_name_gets_all_partitions(
    instance: dg.DagsterInstance, consumer: MakeConsumer
) -> None:
    """And of each asset its own, whatever else is in the log."""
    arrive(instance, "days", "2026-01-01")
    arrive(instance, "raw/flights", "2026-01-01|EWR")
    for name in ("totals", "report"):
        with consumer(name=name).consume() as partitions:
            assert partitions.keys == ["2026-01-01"]
    with consumer(dg.AssetKey(["raw", "flights"]), name="raw").consume() as partitions:
        assert partitions.keys == ["2026-01-01|EWR"]


def test_a_deleted_partition_leaves_the_working_set(
    instance: dg.DagsterInstance, consumer: MakeConsumer
) -> None:
    """Of dynamic partitions; one that was not added yet is held until it is."""
    instance.add_dynamic_partitions("feeds", ["a", "b"])
    arrive(instance, "feeds", "a", "b", "c")
    following = consumer(feeds)
    with following.consume(where="a") as partitions:
        assert partitions.keys == ["a"]
    progress = following.progress()
    assert (progress.waiting, progress.held) == (2, 1)
    instance.delete_dynamic_partition("feeds", "b")
    with following.consume() as partitions:
        assert partitions.keys == []
    assert following.progress().waiting == 1
    instance.add_dynamic_partitions("feeds", ["b", "c"])
    with following.consume() as partitions:
        assert partitions.keys == ["c"]
    # It is there again, but nothing has arrived since.
    arrive(instance, "feeds", "b")
    with following.consume() as partitions:
        assert partitions.keys == ["b"]


def test_dynamic_partitions_may_get_another_name(
    instance: dg.DagsterInstance, consumer: MakeConsumer
) -> None:
    """What waits, or is put back later, is held until it is added there; then it may be deleted."""
    sources = dg.DynamicPartitionsDefinition(name="sources")
    instance.add_dynamic_partitions("feeds", ["a", "b", "c"])
    arrive(instance, "feeds", "a", "b", "c")
    with consumer(feeds).consume(limit=1) as leased:
        renamed = consumer("feeds", partitions_def=sources)
        with renamed.consume() as partitions:
            assert partitions.keys == []
        leased.put_back()
    with renamed.consume() as partitions:
        assert partitions.keys == []
    assert (renamed.progress().waiting, renamed.progress().held) == (3, 3)
    instance.add_dynamic_partitions("sources", ["a", "b"])
    with renamed.consume(where="b") as partitions:
        assert partitions.keys == ["b"]
    instance.delete_dynamic_partition("sources", "a")
    with renamed.consume() as partitions:
        assert partitions.keys == []
    assert (renamed.progress().waiting, renamed.progress().held) == (1, 1)


@ON_SQLITE
def test_a_dimension_of_keys_may_be_dynamic(
    instance: dg.DagsterInstance, consumer: MakeConsumer
) -> None:
    """A key is there when its part of that dimension is."""
    both = dg.MultiPartitionsDefinition(
        {"feed": FEEDS, "kind": dg.StaticPartitionsDefinition(["x", "y"])}
    )
    instance.add_dynamic_partitions("feeds", ["a", "b"])
    arrive(instance, "both", "a|x", "b|y", "a|y")
    following = consumer("both", partitions_def=both)
    with following.consume(limit=1) as partitions:
        assert partitions.keys == ["a|x"]
    instance.delete_dynamic_partition("feeds", "b")
    with following.consume() as partitions:
        assert partitions.keys == ["a|y"]
    assert following.progress().caught_up


@ON_SQLITE
def test_a_name_reads_one_asset_of_one_log(
    instance: dg.DagsterInstance,
    consumer: MakeConsumer,
    dagster_instance: Callable[[str], dg.DagsterInstance],
    backend: str,
) -> None:
    """Anything else is refused, and says what to do."""
    consumer().register()
    with pytest.raises(InvalidInput, match=r"PartitionConsumer\(totals\).asset: got 'feeds'"):
        consumer(feeds).register()
    other = dagster_instance(backend)
    with pytest.raises(ConfigurationError, match="arctic consumers reset totals"):
        consumer(instance=other).consume().__enter__()


@ON_SQLITE
def test_the_environment_names_instance_and_database(
    instance: dg.DagsterInstance,
    state: Database,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a run."""
    monkeypatch.setenv("DAGSTER_HOME", instance.root_directory)
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    arrive(instance, "days", "2026-01-01")
    following = PartitionConsumer(days, name="totals")
    with following.consume() as partitions:
        assert partitions.keys == ["2026-01-01"]
    following.close()
    monkeypatch.delenv("DAGSTER_HOME")
    with pytest.raises(ConfigurationError, match="Set DAGSTER_HOME"):
        following.register()


@dg.asset
def whole() -> None:
    """Without partitions."""


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"name": "a b"}, "PartitionConsumer(a b).name"),
        ({"name": None}, "PartitionConsumer.name"),
        ({"asset": ""}, "PartitionConsumer(totals).asset"),
        ({"asset": "raw//flights"}, "PartitionConsumer(totals).asset"),
        ({"asset": 5}, "PartitionConsumer(totals).asset"),
        ({"asset": whole}, "PartitionConsumer(totals).asset"),
        ({"start": "yesterday"}, "PartitionConsumer(totals).start"),
        ({"start": datetime(2026, 1, 1)}, "PartitionConsumer(totals).start"),
        ({"until": "2026-01-01"}, "PartitionConsumer(totals).until"),
        ({"start": "0001-01-01T00:00:00+09:00"}, "PartitionConsumer(totals).start"),
        ({"until": "9999-12-31T23:59:59-05:00"}, "PartitionConsumer(totals).until"),
        ({"working_set": 0}, "PartitionConsumer(totals).working_set"),
        ({"lease": timedelta(0)}, "PartitionConsumer(totals).lease"),
        ({"lease": 60}, "PartitionConsumer(totals).lease"),
        ({"attempts": 0}, "PartitionConsumer(totals).attempts"),
        ({"attempts": True}, "PartitionConsumer(totals).attempts"),
        ({"attempts": 2**31}, "PartitionConsumer(totals).attempts"),
        ({"working_set": 2**31}, "PartitionConsumer(totals).working_set"),
        ({"partitions_def": "daily"}, "PartitionConsumer(totals).partitions_def"),
        ({"instance": 5}, "PartitionConsumer(totals).instance"),
        ({"settings": 5}, "PartitionConsumer(totals).settings"),
        ({"retry_after": timedelta(-1)}, "PartitionConsumer(totals).retry_after"),
        ({"held_for": timedelta(0)}, "PartitionConsumer(totals).held_for"),
    ],
)
def test_what_cannot_be_is_refused_by_name(arguments: dict[str, Any], field: str) -> None:
    """When it is made, before anything is opened."""
    given = {"asset": "raw/flights", "name": "totals", **arguments}
    with pytest.raises(InvalidInput) as refusal:
        PartitionConsumer(given.pop("asset"), **given)
    assert refusal.value.field == field
    assert str(refusal.value)


def test_an_end_before_the_beginning_is_refused() -> None:
    """It would take nothing."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with pytest.raises(InvalidDefinition, match="a moment for until that is after start"):
        PartitionConsumer("days", name="totals", start=noon, until=noon)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("limit", 0),
        ("limit", "3"),
        ("where", 5),
        ("where", [5]),
        ("wait", 5),
        ("wait", timedelta(seconds=-1)),
        ("poll", 1),
        ("poll", timedelta(0)),
        ("poll", timedelta(seconds=-1)),
        ("owner", 5),
        ("owner", "a\0b"),
    ],
)
def test_what_to_take_is_checked_before_anything_is_opened(
    argument: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no instance here that could be."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with pytest.raises(InvalidInput) as refusal:
        PartitionConsumer("days", name="totals").consume(**{argument: value})
    assert refusal.value.field == argument


def test_another_instance_is_checked() -> None:
    """As the one that is given first."""
    with pytest.raises(InvalidInput, match=r"PartitionConsumer\(totals\).instance: got 5"):
        PartitionConsumer("days", name="totals").on(5)  # type: ignore[arg-type]
