"""When assets were materialized last, as Dagster's storage says, on SQLite and on Postgres."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
import sqlalchemy
from dagster import DagsterInstance

from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration_tests.code_location.odd_events import execute


@pytest.fixture
def instance(backend: str, dagster_instance: Callable[[str], DagsterInstance]) -> DagsterInstance:
    return dagster_instance(backend)


def moment_of(instance: DagsterInstance, asset: str) -> datetime:
    """The moment of the newest materialization, by Dagster's public way of asking."""
    event = instance.get_latest_materialization_event(dg.AssetKey(asset.split("/")))
    assert event is not None
    return datetime.fromtimestamp(event.timestamp, UTC)


def test_the_last_of_several_materializations_counts(instance: DagsterInstance) -> None:
    """Whatever the partition, and whatever other assets did since."""
    begun = datetime.now(UTC)
    for asset, partition in (("raw/a", "1"), ("b", None), ("raw/a", "2"), ("b", None)):
        instance.report_runless_asset_event(
            dg.AssetMaterialization(dg.AssetKey(asset.split("/")), partition=partition)
        )
    first = moment_of(instance, "raw/a")
    instance.report_runless_asset_event(dg.AssetMaterialization(["raw", "a"], partition="1"))
    found = DagsterLog(instance).materialized_at(["raw/a", "b"])
    assert found == {"raw/a": moment_of(instance, "raw/a"), "b": moment_of(instance, "b")}
    assert begun - timedelta(seconds=1) < first < found["raw/a"]
    assert found["raw/a"] < datetime.now(UTC) + timedelta(seconds=1)
    assert all(at.tzinfo is UTC for at in found.values())


def test_an_asset_that_never_was_materialized_is_left_out(instance: DagsterInstance) -> None:
    """Observed, or unknown, or a job's name: not made; and nobody asked for the third."""
    instance.report_runless_asset_event(dg.AssetObservation("seen"))
    instance.report_runless_asset_event(dg.AssetMaterialization("other"))
    log = DagsterLog(instance)
    assert log.materialized_at(["seen", "raw/unknown", "__job.name"]) == {}
    assert log.materialized_at([]) == {}


def test_an_observation_does_not_make_an_asset_fresh(instance: DagsterInstance) -> None:
    """Seen again after it was made: made when it was made."""
    instance.report_runless_asset_event(dg.AssetMaterialization("a"))
    made = moment_of(instance, "a")
    instance.report_runless_asset_event(dg.AssetObservation("a"))
    assert DagsterLog(instance).materialized_at(["a"]) == {"a": made}


def test_a_run_counts_when_it_materializes_not_when_it_plans_to(instance: DagsterInstance) -> None:
    """The first run makes the asset; the second fails before it does."""
    fails: list[bool] = []

    @dg.asset
    def made() -> None:
        if fails:
            raise RuntimeError("on purpose")

    assert dg.materialize([made], instance=instance).success
    at = moment_of(instance, "made")
    fails.append(True)
    assert not dg.materialize([made], instance=instance, raise_on_error=False).success
    assert DagsterLog(instance).materialized_at(["made"]) == {"made": at}


def test_what_was_wiped_was_never_made(instance: DagsterInstance) -> None:
    """Even if it was seen since, which makes it known again; until it is made again."""
    instance.report_runless_asset_event(dg.AssetMaterialization("a"))
    log = DagsterLog(instance)
    assert set(log.materialized_at(["a"])) == {"a"}
    instance.wipe_assets([dg.AssetKey("a")])
    assert log.materialized_at(["a"]) == {}
    instance.report_runless_asset_event(dg.AssetObservation("a"))
    assert log.materialized_at(["a"]) == {}
    instance.report_runless_asset_event(dg.AssetMaterialization("a"))
    assert log.materialized_at(["a"]) == {"a": moment_of(instance, "a")}


def test_it_answers_after_the_instance_of_a_tick_has_ended(instance: DagsterInstance) -> None:
    """A dispatcher keeps its feed from tick to tick, and each tick has an instance of its own."""
    with DagsterInstance.from_config(instance.root_directory) as of_a_tick:
        log = DagsterLog(of_a_tick)
        log.materialized_at(["a"])
    del of_a_tick
    instance.report_runless_asset_event(dg.AssetMaterialization("a"))
    assert log.materialized_at(["a"]) == {"a": moment_of(instance, "a")}


@pytest.mark.parametrize("body", ["{", "null", "[" * 100_000, '{"timestamp": 1e300}'])
def test_a_record_that_dagster_cannot_read_hides_no_other(
    instance: DagsterInstance, body: str
) -> None:
    """The asset whose record is broken was made when its row was written; the others as ever."""
    for asset in ("broken", "other", "wiped"):
        instance.report_runless_asset_event(dg.AssetMaterialization(asset))
    instance.wipe_assets([dg.AssetKey("wiped")])
    instance.report_runless_asset_event(dg.AssetObservation("wiped"))
    made = {asset: moment_of(instance, asset) for asset in ("broken", "other")}
    for table, column in (("event_logs", "event"), ("asset_keys", "last_materialization")):
        statement = f"update {table} set {column} = ? where asset_key = ?"
        execute(instance, "event_logs", statement, body, '["broken"]')
    found = DagsterLog(instance).materialized_at(["broken", "other", "wiped"])
    assert found.keys() == made.keys()
    assert all(abs(found[asset] - made[asset]) < timedelta(seconds=2) for asset in made)


def test_many_assets_cost_as_many_statements_as_two(instance: DagsterInstance) -> None:
    """Counted in the driver: fifty assets, of which ten were made."""
    for number in range(10):
        instance.report_runless_asset_event(dg.AssetMaterialization(f"a{number}"))
    log = DagsterLog(instance)
    assert len(log.materialized_at(["a0", "b0"])) == 1
    counts = []
    for assets in (["a0", "b0"], [f"{kind}{n}" for kind in "ab" for n in range(25)]):
        statements: list[str] = []

        def note(*arguments: object, seen: list[str] = statements) -> None:
            if str(arguments[2]).lstrip().lower().startswith("select"):
                seen.append(str(arguments[2]))

        sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", note)
        try:
            found = log.materialized_at(assets)
        finally:
            sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", note)
        counts.append(len(statements))
    assert len(found) == 10
    # Dagster 1.12 asks about its tables, on a connection for each question.
    assert counts[0] == counts[1] <= (20 if dg.__version__.startswith("1.12.") else 4)


def test_a_storage_that_does_not_answer_says_so(
    dagster_instance: Callable[[str], DagsterInstance], request: pytest.FixtureRequest
) -> None:
    """As one error, whatever the driver."""
    server = request.getfixturevalue("postgres_server")
    instance = dagster_instance("postgres")
    log = DagsterLog(instance)
    name = instance.event_log_storage.postgres_url.rsplit("/", 1)[1]  # type: ignore[attr-defined]
    server.drop_database(name)
    with pytest.raises(DatabaseUnavailable, match="Dagster's event log"):
        log.materialized_at(["a"])
