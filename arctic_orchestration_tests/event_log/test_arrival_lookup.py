"""What is known of arrivals beyond their events, on SQLite and on Postgres."""

from collections.abc import Callable, Collection
from contextlib import closing
from typing import Any

import dagster as dg
import psycopg2
import pytest
from dagster import DagsterInstance

from arctic_orchestration.event_log import check_lookup
from arctic_orchestration.event_log.arrival_checks import ArrivalChecks, concerns
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.event_log.feed import ArrivalLookup, Position
from arctic_orchestration_tests.code_location.odd_events import execute
from arctic_orchestration_tests.event_log.test_check_rows import few_rows, no_nulls, orders, report
from arctic_orchestration_tests.event_log.test_dagster_log import read_all
from arctic_orchestration_tests.event_log.writers import ASSET, _insert
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.templates import give_zone

FLIGHTS = "/".join(ASSET)


@pytest.fixture
def instance(backend: str, dagster_instance: Callable[[str], DagsterInstance]) -> DagsterInstance:
    return dagster_instance(backend)


def arrive(instance: DagsterInstance, *partitions: str | None, version: str | None = None) -> None:
    tags = {"dagster/data_version": version} if version else {}
    for partition in partitions:
        instance.report_runless_asset_event(
            dg.AssetMaterialization(list(ASSET), partition=partition, tags=tags)
        )


def arrived_around_a_wipe(instance: DagsterInstance) -> tuple[Collection[str], Collection[str]]:
    """What has arrived after two partitions were wiped, and once one of them arrived again."""
    arrive(instance, "a", "b")
    log = DagsterLog(instance)
    instance.wipe_assets([dg.AssetKey(list(ASSET))])
    wiped = log.arrived(FLIGHTS, ["a", "b"], log.end())
    arrive(instance, "b")
    return wiped, log.arrived(FLIGHTS, ["a", "b"], log.end())


def arrivals_of(log: DagsterLog) -> list[Event]:
    return [event for event in read_all(log) if event.kind is EventKind.PARTITION]


def position_after(log: DagsterLog, count: int) -> Position:
    return log.read(None, count).position


class TestArrived:
    """Which partitions have arrived among delivered events."""

    def test_what_was_delivered_has_arrived_and_nothing_else(
        self, instance: DagsterInstance
    ) -> None:
        """Three of four events are delivered; other assets do not count."""
        arrive(instance, "a", "b", None, "c")
        instance.report_runless_asset_event(dg.AssetMaterialization("other", partition="d"))
        log: ArrivalLookup = DagsterLog(instance)
        assert isinstance(log, DagsterLog)

        def arrived(
            count: int | None, partitions: Collection[str] = ("a", "b", "c", "d", "")
        ) -> set[str]:
            position = position_after(log, count) if count else None
            return log.arrived(FLIGHTS, partitions, position)

        assert arrived(None) == set()
        assert arrived(1) == {"a"}
        assert arrived(3) == {"a", "b", ""}
        assert arrived(4) == arrived(5) == {"a", "b", "c", ""}
        assert arrived(5, ["c", "d"]) == {"c"}
        assert arrived(5, []) == set()

    def test_an_observation_counts_as_the_feed_counts_it(self, instance: DagsterInstance) -> None:
        """From outside always; by a run, where the feed delivers it."""

        @dg.op
        def see() -> Any:
            yield dg.AssetObservation(list(ASSET), partition="seen")
            yield dg.Output(None)

        @dg.job
        def seeing() -> None:
            see()

        assert seeing.execute_in_process(instance=instance).success
        instance.report_runless_asset_event(dg.AssetObservation(list(ASSET), partition="outside"))
        for observed_by_runs, expected in ((True, {"seen", "outside"}), (False, {"outside"})):
            log = DagsterLog(instance, observed_by_runs=observed_by_runs)
            assert log.arrived(FLIGHTS, ["seen", "outside"], log.end()) == expected

    def test_what_was_wiped_has_not_arrived(self, instance: DagsterInstance) -> None:
        """Until it arrives again."""
        assert arrived_around_a_wipe(instance) == (set(), {"b"})

    @pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York"])
    def test_what_was_wiped_on_a_server_with_another_time_zone(
        self,
        dagster_instance: Callable[[str], DagsterInstance],
        postgres_server: PostgresServer,
        zone: str,
    ) -> None:
        """Dagster writes the moments of events in UTC, and that of the wipe in this zone."""
        instance = dagster_instance("postgres")
        give_zone(instance, postgres_server, zone)
        assert arrived_around_a_wipe(instance) == (set(), {"b"})

    def test_details_of_an_asset_that_dagster_cannot_read_stop_nothing(
        self, instance: DagsterInstance
    ) -> None:
        """Neither do they hide what has arrived."""
        arrive(instance, "a")
        execute(instance, "event_logs", "update asset_keys set asset_details = '{'")
        log = DagsterLog(instance)
        assert log.arrived(FLIGHTS, ["a"], log.end()) == {"a"}

    def test_a_late_commit_has_arrived_when_it_is_delivered(
        self, dagster_instance: Callable[[str], DagsterInstance]
    ) -> None:
        """On Postgres: an id below others that are delivered, committed after them.

        Before it is committed, and between its commit and its delivery, it has not arrived;
        what is above it has.
        """
        instance = dagster_instance("postgres")
        arrive(instance, "first")
        log = DagsterLog(instance)
        storage: Any = instance.event_log_storage
        url = storage.postgres_url.replace("+psycopg2", "")
        keys = ["first", "late", "above"]
        with closing(psycopg2.connect(url)) as connection:
            with connection.cursor() as cursor:
                _insert(storage, cursor, "late")
            arrive(instance, "above")
            position = log.read(None, 10).position
            assert log.arrived(FLIGHTS, keys, position) == {"first", "above"}
            connection.commit()
        assert log.arrived(FLIGHTS, keys, position) == {"first", "above"}
        batch = log.read(position, 10)
        assert [event.partition for event in batch.events] == ["late"]
        assert log.arrived(FLIGHTS, keys, batch.position) == {"first", "late", "above"}
        again = Position.from_json(batch.position.to_json())
        assert log.arrived(FLIGHTS, keys, again) == {"first", "late", "above"}

    def test_ids_that_are_given_out_again_have_not_arrived(
        self, dagster_instance: Callable[[str], DagsterInstance]
    ) -> None:
        """On SQLite: the newest row is deleted, and another one gets its id."""
        instance = dagster_instance("sqlite")
        arrive(instance, "a")

        @dg.asset(key=list(ASSET), partitions_def=dg.StaticPartitionsDefinition(["gone"]))
        def made() -> None: ...

        run = dg.materialize([made], partition_key="gone", instance=instance)
        log = DagsterLog(instance)
        position = log.read(None, 100).position
        assert log.arrived(FLIGHTS, ["a", "gone"], position) == {"a", "gone"}
        execute(instance, "event_logs", "delete from event_logs where run_id = ?", run.run_id)
        for number in range(12):
            arrive(instance, f"new{number}")
        keys = ["a", "gone", *(f"new{number}" for number in range(12))]
        assert log.arrived(FLIGHTS, keys, position) == {"a"}
        position = log.read(position, 100).position
        assert log.arrived(FLIGHTS, keys, position) == set(keys) - {"gone"}


class TestChecksOfArrivals:
    """Which checks an arrival has, and which are still to come."""

    def test_a_run_gives_its_arrivals_planned_checks_and_evaluations(
        self, instance: DagsterInstance
    ) -> None:
        """Two runs of one asset: each arrival has the checks of its own run."""
        runs = {}
        for day in ("mon", "tue"):
            result = dg.materialize(
                [orders, no_nulls, few_rows],
                partition_key=day,
                instance=instance,
                raise_on_error=False,
            )
            runs[day] = result.run_id
        arrive(instance, "x")
        log = DagsterLog(instance)
        arrivals = arrivals_of(log)
        found = log.checks_of(arrivals)
        assert found.keys() == {event.storage_id for event in arrivals}
        for event in arrivals[:2]:
            checks = found[event.storage_id]
            assert checks.planned == {"no_nulls", "few_rows"}
            assert {e.check for e in checks.evaluations} == checks.planned
            assert {e.run_id for e in checks.evaluations} == {runs[event.partition or ""]}
            assert checks.blocked_by == ("no_nulls",)
        assert found[arrivals[2].storage_id] == ArrivalChecks()

    def test_a_check_that_was_planned_and_not_evaluated_is_missing(
        self, instance: DagsterInstance
    ) -> None:
        """The step of the check fails."""

        @dg.asset_check(asset=orders, blocking=True)
        def broken() -> dg.AssetCheckResult:
            raise RuntimeError("on purpose")

        dg.materialize(
            [orders, broken], partition_key="mon", instance=instance, raise_on_error=False
        )
        log = DagsterLog(instance)
        (event,) = arrivals_of(log)
        checks = log.checks_of([event])[event.storage_id]
        assert checks.planned == {"broken"}
        assert checks.evaluations == ()

    def test_a_check_that_passes_later_unblocks(self, instance: DagsterInstance) -> None:
        """By another run of the check alone; and by a report from outside."""
        dg.materialize(
            [orders, no_nulls], partition_key="mon", instance=instance, raise_on_error=False
        )
        log = DagsterLog(instance)
        (event,) = arrivals_of(log)

        def blocked_by() -> tuple[str, ...]:
            return log.checks_of([event])[event.storage_id].blocked_by

        assert blocked_by() == ("no_nulls",)
        again = dg.Definitions(assets=[orders], asset_checks=[no_nulls]).resolve_job_def(
            "__ASSET_JOB"
        )
        report(instance, passed=True, partition="tue")
        assert blocked_by() == ("no_nulls",)
        report(instance, passed=True)
        assert blocked_by() == ()
        subset = again.get_subset(asset_selection=set(), asset_check_selection={no_nulls.check_key})
        subset.execute_in_process(instance=instance, partition_key="mon", raise_on_error=False)
        checks = log.checks_of([event])[event.storage_id]
        assert len(checks.evaluations) == 3
        assert checks.evaluations[-1].target_id == event.storage_id
        assert checks.blocked_by == ("no_nulls",)

    def test_an_arrival_is_compared_only_with_evaluations_of_its_partition(
        self, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Four partitions, each with one: not sixteen comparisons."""
        keys = ["mon", "tue", "wed", "thu"]
        compared: list[tuple[str | None, str | None]] = []

        def noted(check: Event, event: Event) -> bool:
            compared.append((check.partition, event.partition))
            return concerns(check, event)

        monkeypatch.setattr(check_lookup, "concerns", noted)
        for key in keys:
            instance.report_runless_asset_event(dg.AssetMaterialization(orders.key, partition=key))
        for key in keys:
            report(instance, passed=key == "tue", partition=key)
        log = DagsterLog(instance)
        arrivals = arrivals_of(log)
        found = log.checks_of(arrivals)
        assert [[e.passed for e in found[one.storage_id].evaluations] for one in arrivals] == [
            [False], [True], [False], [False],
        ]  # fmt: skip
        assert sorted(compared) == sorted(zip(keys, keys, strict=True))

    def test_a_warning_does_not_block(self, instance: DagsterInstance) -> None:
        """Nor does a failure that is not blocking."""
        warning = dg.AssetCheckSeverity.WARN
        for fields in ({"blocking": True, "severity": warning}, {"blocking": False}):
            report(instance, passed=False, check=str(fields["blocking"]), **fields)
        checks = [e for e in read_all(DagsterLog(instance)) if e.kind is EventKind.CHECK]
        assert ArrivalChecks(evaluations=tuple(checks)).blocked_by == ()


def test_backfills_are_found_by_the_tags_of_runs(instance: DagsterInstance) -> None:
    """One run of two belongs to a backfill; an unknown run does to none."""
    ids = [
        dg.materialize([orders], partition_key="mon", instance=instance, tags=tags).run_id
        for tags in ({"dagster/backfill": "b1"}, {})
    ]
    log = DagsterLog(instance)
    assert log.backfills_of([*ids, "unknown"]) == {ids[0]: "b1"}
    assert log.backfills_of([]) == {}


def test_an_arrival_with_the_data_version_of_the_one_before_has_not_changed(
    instance: DagsterInstance,
) -> None:
    """Of its own partition; without a version, or after a wipe, it has."""
    expected = []
    for partition, version, is_changed in (
        ("a", "1", True),
        ("b", "1", True),
        ("a", "1", False),
        ("a", "2", True),
        ("a", None, True),
        ("a", "2", True),
        (None, "1", True),
        (None, "1", False),
        ("b", "1", False),
    ):
        arrive(instance, partition, version=version)
        expected.append(is_changed)
    log = DagsterLog(instance)
    arrivals = arrivals_of(log)
    changed = log.changed(arrivals)
    assert [event.storage_id in changed for event in arrivals] == expected
    assert log.changed([]) == set()
    instance.wipe_assets([dg.AssetKey(list(ASSET))])
    arrive(instance, "b", version="1")
    last = arrivals_of(log)[-1]
    assert log.changed([last]) == {last.storage_id}


class TestLatestChecks:
    """The latest evaluation of each check of an asset."""

    def test_the_latest_counts_for_each_check_and_partition(
        self, instance: DagsterInstance
    ) -> None:
        """An evaluation without a partition counts for each partition."""
        report(instance, passed=False, partition="mon")
        report(instance, passed=True, partition="tue")
        report(instance, check="whole", passed=True)
        report(instance, check="whole", passed=False)
        log = DagsterLog(instance)

        def passed(partition: str | None) -> dict[str, bool | None]:
            found = log.latest_checks(["raw/orders", "none"], partition)
            assert found.keys() == {"raw/orders"}
            return {name: e.passed if e else None for name, e in found["raw/orders"].items()}

        assert passed(None) == {"no_nulls": True, "whole": False}
        assert passed("mon") == {"no_nulls": False, "whole": False}
        assert passed("tue") == {"no_nulls": True, "whole": False}
        assert passed("wed") == {"no_nulls": None, "whole": False}
        assert log.latest_checks([]) == {}

    def test_a_check_belongs_to_the_partition_whose_materialization_it_checked(
        self, instance: DagsterInstance
    ) -> None:
        """The check itself has no partitions."""
        dg.materialize(
            [orders, no_nulls], partition_key="mon", instance=instance, raise_on_error=False
        )
        log = DagsterLog(instance)
        assert log.latest_checks(["raw/orders"], "tue") == {"raw/orders": {"no_nulls": None}}
        (check,) = log.latest_checks(["raw/orders"], "mon")["raw/orders"].values()
        assert check is not None
        assert (check.passed, check.partition) == (False, "mon")

    def test_checks_of_an_asset_without_partitions_count_for_each_partition(
        self, instance: DagsterInstance
    ) -> None:
        """The first run of the check fails, the second one passes."""
        outcomes: list[bool] = []

        @dg.asset
        def whole() -> None: ...

        @dg.asset_check(asset=whole)
        def is_good() -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed=outcomes.pop())

        log = DagsterLog(instance)
        for expected in (False, True):
            outcomes.append(expected)
            dg.materialize([whole, is_good], instance=instance)
            for partition in (None, "mon"):
                check = log.latest_checks(["whole"], partition)["whole"]["is_good"]
                assert check is not None
                assert check.passed is expected
