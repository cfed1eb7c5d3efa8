"""Schedules of CDAP."""

from typing import Any

import pytest

from arctic_orchestration.schedules.imports.draft import Draft
from arctic_orchestration.schedules.imports.importer import Source
from arctic_orchestration_tests.schedules.imports.reading import form, only, sample

PROGRAM = {"programName": "Workflow", "programType": "WORKFLOW"}


def with_constraint(zone: str | None = "UTC", **constraint: Any) -> Draft:
    trigger = {"type": "TIME", "cronExpression": "0 4 * * *"}
    body = {"name": "s", "program": PROGRAM, "trigger": trigger, "constraints": [constraint]}
    return only(Source.CDAP, body, timezone=zone)


def test_the_sample() -> None:
    """With the server's zone it is exact; without it, that is said."""
    assumed = sample(Source.CDAP)["DailySchedule"]
    assert assumed.reasons == [
        "timezone: the file does not have the zone of CDAP's server: UTC is assumed (--timezone)"
    ]
    schedules = sample(Source.CDAP, timezone="Asia/Kolkata")
    assert {name: draft.outcome.value for name, draft in schedules.items()} == {
        "DailySchedule": "exact",
        "dataPipelineSchedule": "exact",
        "after_both": "approximate",
        "every_minute_pair": "not possible",
        "midnight_window": "not possible",
        "future": "not possible",
        "newer": "approximate",
    }
    daily = form(schedules["DailySchedule"])
    # CDAP's 2 is Monday; cron's is Tuesday.
    assert daily["trigger"] == {
        "cron": {"expression": "0 4 * * 1", "timezone": "Asia/Kolkata", "catch_up": "none"}
    }
    assert daily["constraints"] == [
        {"concurrency": {"limit": 1, "otherwise": "cancel"}},
        {"window": {"start": "22:00", "end": "06:00", "timezone": "America/Los_Angeles"}},
        {"minimum_interval": {"duration": "1h", "otherwise": "cancel"}},
        {"delay": {"duration": "1m"}},
    ]
    assert (daily["timeout"], daily["coalesce"], daily["enabled"]) == ("12h", False, True)
    assert daily["properties"] == {"input.path": "/data/purchases"}
    assert schedules["DailySchedule"].left_out == [
        "program.programType",
        "namespace",
        "applicationVersion",
        "lastUpdateTime",
    ]


def test_a_pipeline_is_called_as_its_application() -> None:
    """The names of its schedule and workflow are the same in all pipelines."""
    pipeline = form(sample(Source.CDAP)["dataPipelineSchedule"])
    assert (pipeline["name"], pipeline["target"]) == ("flights_to_lake", {"job": "flights_to_lake"})
    assert (pipeline["trigger"]["cron"]["expression"], pipeline["enabled"]) == (
        "15 10 * * L5",
        False,
    )
    assert pipeline["timeout"] == "1d"


def test_triggers_are_joined_as_there() -> None:
    """And a delay that begins later than in CDAP is a difference."""
    draft = sample(Source.CDAP)["after_both"]
    assert form(draft)["trigger"] == {
        "all_of": [
            {"partitions": {"asset": "rawRecords", "count": 5, "distinct": False}},
            {
                "any_of": [
                    {"run": {"job": "flights_to_lake", "status": ["success", "failure"]}},
                    {"data": {"asset": "events/purchase_stream", "size": "10MiB"}},
                ]
            },
        ]
    }
    assert [reason.split(":")[0] for reason in draft.reasons] == ["STREAM_SIZE", "DELAY"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("every_minute_pair", "Quartz '0 0 4 1 * 2': exactly one day field must be ?"),
        ("midnight_window", "constraints[0].endTime: got '24:00', expected 00:00 to 23:59"),
        (
            "future",
            "trigger.type: got 'MOON', expected TIME or PARTITION or STREAM_SIZE or "
            "PROGRAM_STATUS or AND or OR",
        ),
        ("newer", "not understood: trigger.moonPhase: 'full'"),
    ],
)
def test_what_is_not_understood_is_named(name: str, reason: str) -> None:
    assert sample(Source.CDAP, timezone="UTC")[name].reasons == [reason]


@pytest.mark.parametrize("kind", ["CONCURRENCY", "LAST_RUN", "TIME_RANGE"])
@pytest.mark.parametrize(
    ("waits", "otherwise"), [(None, "cancel"), (False, "cancel"), (True, None)]
)
def test_absent_is_false(kind: str, waits: bool | None, otherwise: str | None) -> None:
    """Gson makes a constraint without its constructor, so the field keeps Java's default."""
    fields: dict[str, Any] = {"maxConcurrency": 1}
    if kind == "LAST_RUN":
        fields = {"millisSinceLastRun": 1}
    elif kind == "TIME_RANGE":
        fields = {"startTime": "01:00", "endTime": "05:00", "timeZone": "UTC"}
    if waits is not None:
        fields["waitUntilMet"] = waits
    (constraint,) = form(with_constraint(type=kind, **fields))["constraints"]
    (body,) = constraint.values()
    assert body.get("otherwise") == otherwise


def test_a_delay_always_waits() -> None:
    """CDAP refuses another; it counts from the only event of a tick, so it is exact."""
    draft = with_constraint(type="DELAY", millisAfterTrigger=1500)
    assert form(draft)["constraints"] == [{"delay": {"duration": "1s500ms"}}]
    assert draft.reasons == []
    assert "constraints[0]: CDAP refuses a DELAY that does not wait; it waits" in draft.notes


def test_a_range_that_ends_in_a_fold_is_a_difference() -> None:
    fields: dict[str, Any] = {
        "type": "TIME_RANGE",
        "timeZone": "America/New_York",
        "waitUntilMet": True,
    }
    assert with_constraint(**fields, startTime="22:00", endTime="06:00").reasons == []
    (reason,) = with_constraint(**fields, startTime="22:00", endTime="01:30").reasons
    assert reason.startswith("constraints[0]: on the day clocks in America/New_York go back")


def test_a_schedule_that_can_never_run_is_not_possible() -> None:
    """Its delay is longer than its timeout, a day: no form of it would be accepted."""
    draft = with_constraint(type="DELAY", millisAfterTrigger=2 * 86_400_000, waitUntilMet=True)
    assert draft.form is None
    assert draft.reasons[0].startswith("Schedule(s).timeout: got '1d'")
