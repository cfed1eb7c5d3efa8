"""Asset checks, freshness policies and data versions in Dagster's log, on SQLite and Postgres."""

import json
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.definitions.freshness import FreshnessState, FreshnessStateChange

from arctic_orchestration.event_log.check_rows import FRESHNESS_STATES, SEVERITIES
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration_tests.code_location.odd_events import execute
from arctic_orchestration_tests.event_log.test_dagster_log import read_all

DAYS = dg.StaticPartitionsDefinition(["mon", "tue"])


@pytest.fixture
def instance(backend: str, dagster_instance: Callable[[str], DagsterInstance]) -> DagsterInstance:
    return dagster_instance(backend)


@dg.asset(key=["raw", "orders"], partitions_def=DAYS)
def orders() -> dg.MaterializeResult[Any]:
    return dg.MaterializeResult(data_version=dg.DataVersion("v1"))


@dg.asset_check(asset=orders, blocking=True)
def no_nulls() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False, metadata={"nulls": 3})


@dg.asset_check(asset=orders)
def few_rows() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN)


def report(instance: DagsterInstance, check: str = "no_nulls", **fields: Any) -> None:
    """Reports an evaluation from outside of a run."""
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(["raw", "orders"]),
            check_name=check,
            **{"passed": True, "metadata": {}, **fields},
        )
    )


def of_kind(instance: DagsterInstance, kind: EventKind) -> list[Event]:
    return [event for event in read_all(DagsterLog(instance)) if event.kind is kind]


def test_a_run_announces_its_checks_with_the_partition_that_was_checked(
    instance: DagsterInstance,
) -> None:
    """Two checks without partitions of their own, in a run of the partition ``tue``."""
    run = dg.materialize(
        [orders, no_nulls, few_rows],
        partition_key="tue",
        instance=instance,
        raise_on_error=False,
    )
    (arrival,) = of_kind(instance, EventKind.PARTITION)
    assert arrival.data_version == "v1"
    checks = {event.check: event for event in of_kind(instance, EventKind.CHECK)}
    failed, warned = checks.pop("no_nulls"), checks.pop("few_rows")
    assert not checks
    for event in (failed, warned):
        assert (event.subject, event.run_id, event.partition) == ("raw/orders", run.run_id, "tue")
        assert event.target_id == arrival.storage_id
        assert event.passed is False
        assert event.problem is None
    assert (failed.severity, failed.blocking, failed.metadata) == ("error", True, {"nulls": 3})
    assert (warned.severity, warned.blocking) == ("warn", False)


def test_an_evaluation_from_outside_needs_neither_run_nor_materialization(
    instance: DagsterInstance,
) -> None:
    """With a partition of its own, and with none."""
    report(instance, partition="mon")
    report(instance, passed=False)
    first, second = of_kind(instance, EventKind.CHECK)
    assert (first.check, first.passed, first.partition) == ("no_nulls", True, "mon")
    assert (second.passed, second.partition, second.run_id) == (False, None, None)
    assert (second.blocking, second.target_id, second.problem) == (None, None, None)


def test_a_freshness_policy_announces_its_states(instance: DagsterInstance) -> None:
    """Both states, in lower case."""
    for before, after in (("UNKNOWN", "PASS"), ("PASS", "WARN"), ("WARN", "FAIL")):
        instance._report_runless_asset_event(
            FreshnessStateChange(
                key=dg.AssetKey(["raw", "orders"]),
                previous_state=FreshnessState(before),
                new_state=FreshnessState(after),
                state_change_timestamp=1.0,
            )
        )
    events = of_kind(instance, EventKind.FRESHNESS)
    assert [(e.previous_state, e.state) for e in events] == [
        ("unknown", "pass"),
        ("pass", "warn"),
        ("warn", "fail"),
    ]
    assert {(e.subject, e.run_id, e.problem) for e in events} == {("raw/orders", None, None)}


def test_arrivals_have_the_data_version_of_their_tags(instance: DagsterInstance) -> None:
    """A materialization, an observation, and one without a version."""
    for made in (
        dg.AssetMaterialization("a", tags={"dagster/data_version": "m"}),
        dg.AssetObservation("a", tags={"dagster/data_version": "o"}),
        dg.AssetMaterialization("a"),
    ):
        instance.report_runless_asset_event(made)
    assert [event.data_version for event in read_all(DagsterLog(instance))] == ["m", "o", None]


def test_the_states_and_severities_are_those_of_dagster() -> None:
    """A new one in Dagster fails here, before it is a problem of an event."""
    assert {state.value.lower() for state in FreshnessState} == set(FRESHNESS_STATES)
    assert {member.name.lower() for member in dg.AssetCheckSeverity} == set(SEVERITIES)


BAD: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("no JSON", lambda data: None, "event: got"),
    ("no asset", lambda data: data.pop("asset_key"), "asset_key: got None"),
    ("no name", lambda data: data.pop("check_name"), "check_name: got None, expected a text"),
    ("a name of another kind", lambda data: data.update(check_name=[1]), "check_name: got [1]"),
    ("no result", lambda data: data.pop("success"), "success: got None, expected true or false"),
    ("a word for a result", lambda data: data.update(success="yes"), "success: got 'yes'"),
    (
        "another severity",
        lambda data: data.update(severity={"__enum__": "AssetCheckSeverity.FATAL"}),
        "severity: got {'__enum__': 'AssetCheckSeverity.FATAL'}, expected one of error, warn",
    ),
    (
        "a target without an id",
        lambda data: data.update(target_materialization_data={"x": 1}),
        "target",
    ),
    ("odd metadata", lambda data: data.update(metadata={"m": {"__class__": "New"}}), "metadata.m"),
    ("a list for all", lambda data: {"list": []}, "event: got"),
]


@pytest.mark.parametrize(
    ("change", "problem"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
def test_an_evaluation_that_cannot_be_understood_hides_no_other(
    instance: DagsterInstance, change: Callable[[dict[str, Any]], Any], problem: str
) -> None:
    """Its problem is named; what follows it is read as ever."""
    report(instance)
    report(instance, check="after")
    (body,) = [
        e.event_log_entry
        for e in instance.event_log_storage.get_event_records(
            dg.EventRecordsFilter(dg.DagsterEventType.ASSET_CHECK_EVALUATION), ascending=True
        )
    ][:1]
    document = json.loads(dg.serialize_value(body))
    changed = change(document["dagster_event"]["event_specific_data"])
    if isinstance(changed, dict) and "list" in changed:
        document["dagster_event"]["event_specific_data"] = changed["list"] or [1]
    text = "{" if problem == "event: got" and changed is None else json.dumps(document)
    statement = "update event_logs set event = ? where id = (select min(id) from event_logs)"
    execute(instance, "event_logs", statement, text)
    odd, after = of_kind(instance, EventKind.CHECK)
    assert odd.problem is not None
    assert problem in odd.problem
    assert (after.check, after.passed, after.problem) == ("after", True, None)
    assert Event.from_json(json.loads(json.dumps(odd.to_json()))) == odd


def test_a_nul_is_kept_escaped(
    dagster_instance: Callable[[str], DagsterInstance],
) -> None:
    """As in arrivals, so that the state database can hold them."""
    instance = dagster_instance("sqlite")
    report(instance, check="a\0b", partition="c\0d")
    (event,) = of_kind(instance, EventKind.CHECK)
    assert (event.check, event.partition) == ("a\\u0000b", "c\\u0000d")
