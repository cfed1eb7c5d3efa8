"""``run``: runs of a job, or of assets, that reached a status."""

from datetime import UTC, datetime

from arctic_orchestration.event_log.event import Event, EventKey, EventKind, RunStatus
from arctic_orchestration.schedules.triggers import Arrivals, on
from arctic_orchestration.schedules.triggers.run import Run

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ended(status: RunStatus, **fields: object) -> Event:
    form = {"kind": EventKind.RUN, "subject": "rollup", "at": NOW, "location": "here", **fields}
    return Event(status=status, **form)  # type: ignore[arg-type]


def concerns(trigger: Run, event: Event, location: str = "here") -> bool:
    return bool(set(trigger.keys(location)) & set(event.keys)) and trigger.takes(event)


def test_a_success_is_what_is_waited_for_unless_it_says_otherwise() -> None:
    """A failure of the job concerns only who requests failures."""
    usual, failures = on.run("rollup"), on.run("rollup", status="failure")
    success, failure = ended(RunStatus.SUCCESS), ended(RunStatus.FAILURE)
    assert concerns(usual, success)
    assert not concerns(usual, failure)
    assert concerns(failures, failure)
    assert not concerns(failures, success)


def test_several_statuses_can_be_requested() -> None:
    """However a run ends."""
    trigger = on.run("rollup", status=["success", "failure", "canceled"])
    ends = (RunStatus.SUCCESS, RunStatus.FAILURE, RunStatus.CANCELED)
    assert all(concerns(trigger, ended(status)) for status in ends)
    assert not concerns(trigger, ended(RunStatus.STARTED))


def test_runs_are_those_of_the_schedules_own_location() -> None:
    """Another location is requested by its name; then its jobs are not looked for here."""
    own, other = on.run("rollup"), on.run("rollup", location="there")
    assert not concerns(own, ended(RunStatus.SUCCESS, location="there"))
    assert concerns(other, ended(RunStatus.SUCCESS, location="there"))
    assert not concerns(other, ended(RunStatus.SUCCESS))
    assert own.job_name_fields() == {"job": "rollup"}
    assert other.job_name_fields() == {}


def test_runs_of_assets_are_found_by_each_asset() -> None:
    """A run that was to make one of them."""
    trigger = on.run(assets=["a", "b/c"])
    assert trigger.keys("here") == (
        EventKey.of_asset_run("here", "a", RunStatus.SUCCESS),
        EventKey.of_asset_run("here", "b/c", RunStatus.SUCCESS),
    )
    assert concerns(trigger, ended(RunStatus.SUCCESS, subject="__ASSET_JOB", assets=("b/c", "z")))
    assert not concerns(trigger, ended(RunStatus.SUCCESS, subject="__ASSET_JOB", assets=("z",)))
    assert trigger.asset_fields() == {"assets[0]": "a", "assets[1]": "b/c"}
    assert on.run(assets=["a"], location="there").asset_fields() == {}


def test_it_fires_at_its_count_of_runs() -> None:
    """Runs count, not partitions."""
    trigger = on.run("rollup", status=["success", "failure"], count=2)
    one = trigger.evaluate([Arrivals(events=1, partitions=1)], NOW)
    assert not one.satisfied
    assert one.reason == "1 of 2 runs of job rollup reached success or failure"
    assert trigger.evaluate([Arrivals(events=2, partitions=1)], NOW).satisfied
    reason = on.run(assets=["a", "b"]).evaluate([Arrivals()], NOW).reason
    assert reason == "0 of 1 runs of assets a, b reached success"


def test_runs_of_any_location_can_be_waited_for() -> None:
    """By job or by asset; the name is not looked for in the own location."""
    anywhere = on.run("rollup", location="*")
    assert concerns(anywhere, ended(RunStatus.SUCCESS, location="there"))
    assert concerns(anywhere, ended(RunStatus.SUCCESS))
    assert anywhere.job_name_fields() == {}
    of_asset = on.run(assets=["a"], location="*")
    assert concerns(of_asset, ended(RunStatus.SUCCESS, location="there", assets=("a",)))
    reason = "0 of 1 runs of job rollup in any location reached success"
    assert anywhere.evaluate([Arrivals()], NOW).reason == reason


def test_a_run_is_taken_only_with_all_of_the_tags() -> None:
    """A value is a glob; a run without the tag does not match even ``*``."""
    trigger = on.run("rollup", tags={"team": "ops", "day": "2026-*"})
    assert concerns(trigger, ended(RunStatus.SUCCESS, tags={"team": "ops", "day": "2026-01-01"}))
    assert not concerns(trigger, ended(RunStatus.SUCCESS, tags={"team": "ops"}))
    assert not concerns(trigger, ended(RunStatus.SUCCESS, tags={"team": "Ops", "day": "2026-1"}))
    assert not concerns(on.run("rollup", tags={"team": "*"}), ended(RunStatus.SUCCESS))
    reason = "0 of 1 runs of job rollup tagged team=ops, day=2026-* reached success"
    assert trigger.evaluate([Arrivals()], NOW).reason == reason


def test_runs_of_assets_can_be_those_of_one_job() -> None:
    """A backfill, or a run of another job, that makes the asset does not count."""
    trigger = on.run("nightly", assets=["a"])
    assert concerns(trigger, ended(RunStatus.SUCCESS, subject="nightly", assets=("a",)))
    assert not concerns(trigger, ended(RunStatus.SUCCESS, subject="__ASSET_JOB", assets=("a",)))
    assert not concerns(trigger, ended(RunStatus.SUCCESS, subject="nightly", assets=("b",)))
    assert trigger.job_name_fields() == {"job": "nightly"}
    reason = "0 of 1 runs of assets a by job nightly reached success"
    assert trigger.evaluate([Arrivals()], NOW).reason == reason
