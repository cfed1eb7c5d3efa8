"""Jobs of Databricks."""

from typing import Any

import pytest

from arctic_orchestration.schedules.imports.draft import Draft, Outcome
from arctic_orchestration.schedules.imports.importer import Source
from arctic_orchestration_tests.schedules.imports.reading import form, only, sample

SKIPS = "max_concurrent_runs: a run that Databricks skips waits here, with all arrivals"


def job(**settings: Any) -> Draft:
    return only(Source.DATABRICKS, {"name": "j", **settings}, timezone=None)


def test_the_sample() -> None:
    """A page of a list, with each kind of trigger."""
    jobs = sample(Source.DATABRICKS)
    assert {name: draft.outcome.value for name, draft in jobs.items()} == {
        "has_more": "not possible",
        "next_page_token": "not possible",
        "A multitask job": "approximate",
        "weekday_report": "exact",
        "on_tables": "exact",
        "one_table_quiet": "approximate",
        "on_files": "approximate",
        "each_day": "approximate",
        "stream": "approximate",
        "manual": "not possible",
        "on_model": "not possible",
        "every_10_seconds": "not possible",
    }
    multitask = jobs["A multitask job"]
    assert form(multitask) == {
        "name": "A_multitask_job",
        "description": "This job contains multiple tasks.",
        "target": {"job": "A_multitask_job"},
        "trigger": {
            "cron": {
                "expression": "30 * * * *",
                "timezone": "Europe/London",
                "catch_up": "none",
            }
        },
        "constraints": [{"concurrency": {"limit": 10}}],
        "timeout": "2d",
        "coalesce": False,
        "properties": {"table": "users"},
        "tags": {
            "cost-center": "engineering",
            "team": "jobs",
            "dagster/max_runtime": "86400",
        },
        "enabled": True,
    }
    assert multitask.reasons[0] == "second 20: ticks are at second 0"
    assert {"settings.tasks", "settings.email_notifications"} <= set(multitask.left_out)
    assert form(jobs["weekday_report"])["enabled"] is False


def test_tables_and_files_are_assets() -> None:
    jobs = sample(Source.DATABRICKS)
    tables = form(jobs["on_tables"])
    assert tables["trigger"] == {
        "all_of": [
            {"partitions": {"asset": "main/sales/orders"}},
            {"partitions": {"asset": "main/sales/payments"}},
        ]
    }
    # Each run is queued, none is skipped.
    assert (tables["constraints"], tables["coalesce"]) == ([{"concurrency": {"limit": 1}}], False)
    quiet = form(jobs["one_table_quiet"])
    assert quiet["trigger"] == {
        "quiet": {"asset": "main/analytics/daily_events", "duration": "10m"}
    }
    assert jobs["one_table_quiet"].reasons == [SKIPS]
    files = form(jobs["on_files"])
    assert files["trigger"] == {"partitions": {"asset": "landing/orders_in"}}
    assert files["constraints"] == [
        {"rate": {"limit": 1, "per": "1m"}},
        {"concurrency": {"limit": 1}},
    ]


def test_a_run_that_is_skipped_is_canceled() -> None:
    """Without the queue, a tick at a run's time has no run; the default is one run at a time."""
    schedule = {"quartz_cron_expression": "0 0 4 * * ?", "timezone_id": "UTC"}
    draft = job(schedule=schedule)
    assert form(draft)["constraints"] == [{"concurrency": {"limit": 1, "otherwise": "cancel"}}]
    assert (draft.outcome, form(draft)["enabled"]) == (Outcome.EXACT, True)


@pytest.mark.parametrize("timeout", [-1, 10**12])
def test_a_timeout_that_is_none_is_not_understood(timeout: int) -> None:
    schedule = {"quartz_cron_expression": "0 0 4 * * ?", "timezone_id": "UTC"}
    draft = job(schedule=schedule, timeout_seconds=timeout)
    assert draft.reasons == [f"not understood: timeout_seconds: {timeout}"]
    assert "tags" not in form(draft)


def test_a_continuous_job_runs_again_when_it_has_ended() -> None:
    stream = form(sample(Source.DATABRICKS)["stream"])
    assert stream["trigger"] == {"elapsed": {"duration": "1m"}}
    assert stream["constraints"] == [{"concurrency": {"limit": 1}}]
    assert "coalesce" not in stream


@pytest.mark.parametrize(
    ("unit", "duration"), [("HOURS", "12h"), ("DAYS", "12d"), ("WEEKS", "84d")]
)
def test_a_period_is_in_its_unit(unit: str, duration: str) -> None:
    draft = job(trigger={"periodic": {"interval": 12, "unit": unit}})
    assert form(draft)["trigger"] == {"elapsed": {"duration": duration}}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_concurrent_runs": 0}, "max_concurrent_runs: 0: Databricks skips each run"),
        ({"continuous": {}}, "schedule and continuous: expected exactly one"),
        (
            {"schedule": {"quartz_cron_expression": "0 0 4 * * ?", "timezone_id": "Mars"}},
            "schedule.timezone_id: got 'Mars', expected a time zone of the IANA database",
        ),
        ({"schedule": {"timezone_id": "UTC"}}, "schedule.quartz_cron_expression: is missing"),
        ({"timeout_seconds": "1h"}, "timeout_seconds: got '1h', expected a whole number"),
        ({"tags": {"dagster/partition": "x"}}, "Schedule(j).tags: "),
    ],
)
def test_what_is_not_possible_has_its_reason(settings: dict[str, Any], reason: str) -> None:
    schedule = {"quartz_cron_expression": "0 0 4 * * ?", "timezone_id": "UTC"}
    draft = job(**{"schedule": schedule, **settings})
    assert draft.form is None
    assert draft.reasons[0].startswith(reason)


def test_a_trigger_of_another_kind_is_named() -> None:
    assert sample(Source.DATABRICKS)["on_model"].reasons[1] == (
        "not understood: settings.trigger.model: {'securable_name': 'main.ml.churn'}"
    )
