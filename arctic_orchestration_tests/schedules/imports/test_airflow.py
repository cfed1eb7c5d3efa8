"""DAGs of Airflow 3."""

from typing import Any

import pytest

from arctic_orchestration.schedules.imports.draft import Outcome
from arctic_orchestration.schedules.imports.importer import Source
from arctic_orchestration_tests.schedules.imports.reading import drafts, form, only, sample


def dag(**fields: Any) -> dict[str, Any]:
    known = {"timezone": "UTC", "catchup": False, "is_paused": False}
    return {"dag_id": "d", "timetable_summary": "0 4 * * *", **known, **fields}


def test_the_sample() -> None:
    """Assets or a time, crons, a period, and what has no schedule."""
    dags = sample(Source.AIRFLOW)
    assert {name: draft.outcome.value for name, draft in dags.items()} == {
        "example_asset_with_timetable": "exact",
        "nightly.load": "approximate",
        "hourly": "approximate",
        "two_crons": "approximate",
        "every_90_minutes": "approximate",
        "forever": "approximate",
        "by_hand": "not possible",
        "listed_only": "not possible",
        "aliased": "not possible",
        "partitioned": "not possible",
        "workdays": "not possible",
    }
    assert form(dags["example_asset_with_timetable"]) == {
        "name": "example_asset_with_timetable",
        "description": "Both dimensions, or Wednesdays at one",
        "target": {"job": "example_asset_with_timetable"},
        "trigger": {
            "any_of": [
                {"cron": {"expression": "0 1 * * 3", "timezone": "UTC"}},
                {
                    "any_of": [
                        {
                            "all_of": [
                                {"partitions": {"asset": "dag1/output_1_txt"}},
                                {"partitions": {"asset": "dim_carriers"}},
                            ]
                        },
                        {"partitions": {"asset": "manual_release"}},
                    ]
                },
            ]
        },
        "constraints": [{"concurrency": {"limit": 1}}],
        "timeout": "3650d",
        "coalesce": False,
        "properties": {"environment": "prod"},
        "tags": {
            "airflow/tags": "asset-time,produces",
            "airflow/owners": "airflow,lake",
            "dagster/max_runtime": "5400",
        },
        "enabled": True,
    }
    assert "asset: s3://dag1/output_1.txt → dag1/output_1_txt" in (
        dags["example_asset_with_timetable"].notes
    )


def test_each_difference_is_named() -> None:
    """Also a field that is not known."""
    nightly = sample(Source.AIRFLOW)["nightly.load"]
    assert nightly.reasons == [
        "catchup: ticks before the import are not made up, later ones up to 10,000",
        "when clocks in America/New_York go forward, Airflow shifts a time that they skip by the "
        "length of the gap; here it is the first moment after the gap",
        "end_date: it goes on after 2030-01-01T00:00:00Z unless it is suspended then",
        "max_consecutive_failed_dag_runs: no pause after 3 failures",
        "not understood: fancy_new_field: {'a': 1}",
    ]
    assert nightly.notes == ["job: nightly.load → nightly_load"]
    assert form(nightly)["enabled"] is False
    assert form(nightly)["name"] == "nightly.load"


def test_the_list_lacks_what_the_details_have() -> None:
    """So the same DAG is approximate in the one, and exact in the other."""
    listed = dag()
    del listed["timezone"], listed["catchup"]
    (draft,) = drafts(Source.AIRFLOW, {"dags": [listed], "total_entries": 1})
    assert draft.reasons == [
        "timezone: the file does not have timezone, which the details have: UTC is assumed "
        "(--timezone)",
        "catchup: the details have it; false is assumed",
    ]
    assert only(Source.AIRFLOW, dag()).outcome is Outcome.EXACT


def test_a_page_of_several_is_named() -> None:
    """The DAGs of the other pages would be missed in silence."""
    page, draft = drafts(Source.AIRFLOW, {"dags": [dag()], "total_entries": 120})
    assert page.reasons == [
        "total_entries: 120: the file is one page of several, or not understood"
    ]
    assert draft.outcome is Outcome.EXACT


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"timetable_summary": "@once"}, "timetable_summary @once: it has no schedule"),
        ({"timetable_summary": "0 4 * * * 30"}, "timetable_summary '0 4 * * * 30': "),
        ({"timetable_summary": "H 4 * * *"}, "timetable_summary 'H 4 * * *': "),
        ({"timetable_summary": f"{'9' * 14} days, 0:00:00"}, "timetable_summary '99999999999999 d"),
        ({"timetable_summary": 7}, "timetable_summary: got 7, expected text"),
        ({"end_date": "2026-01-01T00:00:00Z"}, "end_date: 2026-01-01T00:00:00Z has passed"),
        ({"timezone": "Mars"}, "timetable_summary '0 4 * * *': "),
        (
            {"timetable_summary": "Asset", "asset_expression": {"xor": []}},
            "asset_expression.xor: expected any, all, asset, asset_ref or alias",
        ),
        (
            {"timetable_summary": "Asset", "asset_expression": {"asset": {"group": "g"}}},
            "asset_expression.asset: has neither name nor uri",
        ),
    ],
)
def test_what_is_not_possible_has_its_reason(fields: dict[str, Any], reason: str) -> None:
    draft = only(Source.AIRFLOW, dag(**fields))
    assert draft.form is None
    assert draft.reasons[0].startswith(reason)


@pytest.mark.parametrize("timeout", ["P999999999999D", 1e300, float("inf"), -1])
def test_a_timeout_beyond_all_times_is_not_understood(timeout: object) -> None:
    draft = only(Source.AIRFLOW, dag(dag_run_timeout=timeout))
    assert "tags" not in form(draft)
    assert draft.reasons[0].startswith("not understood: dag_run_timeout: ")


def test_a_dag_that_begins_later_says_when() -> None:
    draft = only(Source.AIRFLOW, dag(start_date="2026-02-01T00:00:00Z"))
    assert draft.reasons == ["start_date: it would run before 2026-02-01T00:00:00Z: enable it then"]
    assert only(Source.AIRFLOW, dag(start_date="2025-02-01T00:00:00Z")).reasons == []


def test_a_timetable_in_another_zone_is_noticed() -> None:
    """The API shows the zone of the DAG alone, and the next run, which is 04:00 in Berlin."""
    draft = only(Source.AIRFLOW, dag(next_dagrun_run_after="2026-01-11T03:00:00Z"))
    assert draft.reasons == [
        "next_dagrun_run_after: 2026-01-11T03:00:00Z is no tick in UTC: the timetable may have a "
        "zone of its own"
    ]
    assert only(Source.AIRFLOW, dag(next_dagrun_run_after="2026-01-11T04:00:00Z")).reasons == []
    for outside in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"):
        (reason,) = only(Source.AIRFLOW, dag(next_dagrun_run_after=outside)).reasons
        assert reason.startswith(f"next_dagrun_run_after: {outside} is no tick")


@pytest.mark.parametrize(
    ("expression", "zone", "reasons"),
    [
        ("0 * * * *", "Europe/Berlin", 0),
        ("*/40 * * * 0", "Europe/Berlin", 0),
        # Both changes of a year are between two ticks.
        ("0 * * 1 *", "Europe/Berlin", 0),
        # In 2026, Airflow 3.3's first tick after 29 March is at 01:00 on Monday, 25 October's last
        # one at 23:00 on Sunday.
        ("0 * * * 1-5", "Europe/Berlin", 1),
        ("15 * 1 * *", "Europe/Berlin", 1),
        ("0 * * * 1-5", "Asia/Kolkata", 0),
        # Half an hour: 02:00 there is another 01:30.
        ("0 * * * *", "Australia/Lord_Howe", 1),
    ],
)
def test_an_hourly_dag_counts_across_clock_changes(
    expression: str, zone: str, reasons: int
) -> None:
    """As ``CronMixin._get_next`` of Airflow, which adds the difference of two wall times."""
    draft = only(Source.AIRFLOW, dag(timetable_summary=expression, timezone=zone))
    assert len(draft.reasons) == reasons
    assert all("counts the time to the next tick" in reason for reason in draft.reasons)


@pytest.mark.parametrize(
    ("summary", "meet"),
    [
        ("0 0 * * *, 0 0 * * 1", True),
        ("0 12 * * 0#2, 0 12 14 * *", True),
        ("0 0 * * *, 0 12 * * *", False),
        ("0 0 * * 1, 0 0 * * 2", False),
        ("0 0 1 * *, 0 0 15 * *", False),
    ],
)
def test_several_times_are_one_run_of_airflow(summary: str, meet: bool) -> None:
    """Where they meet, and after an outage, as ``MultipleCronTriggerTimetable`` says."""
    reasons = only(Source.AIRFLOW, dag(timetable_summary=summary)).reasons
    assert [reason for reason in reasons if "Airflow makes one run" in reason] == reasons[1:]
    assert "after an outage, Airflow makes up the latest of all" in reasons[0]
    assert len(reasons) == 1 + meet
