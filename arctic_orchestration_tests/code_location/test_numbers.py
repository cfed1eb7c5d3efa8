"""The asset ``arctic/scheduler``, and what the dispatcher reports to it without a run."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration import Arctic, Schedule, on, only
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.dagster.scheduler_metrics import SCHEDULER
from arctic_orchestration_tests.code_location.conftest import Clock, Place


def a_location(**options: Any) -> dg.Definitions:
    """Two schedules: one waits for more, one is held."""

    @dg.op
    def nothing() -> None: ...

    @dg.job
    def work() -> None:
        nothing()

    schedules = [
        Schedule(name="more", target="work", trigger=on.partitions("raw/a", count=5), enabled=True),
        Schedule(
            name="held",
            target="work",
            trigger=on.partitions("raw/a"),
            constraints=[only.delay("1h")],
            enabled=True,
        ),
    ]
    return dg.Definitions.merge(
        dg.Definitions(assets=[dg.AssetSpec(["raw", "a"])], jobs=[work]),
        Arctic(schedules=schedules, schedule_assets=False, **options).definitions(),
    )


def plain(event: dg.AssetObservation) -> dict[str, Any]:
    """The numbers that are not zero, by name."""
    return {name: value.value for name, value in event.metadata.items() if value.value != 0}


def report(place: Place, definitions: dg.Definitions) -> list[dg.AssetObservation]:
    """One tick, whose observations are stored as the daemon stores them."""
    events = place.tick(definitions).asset_events
    for event in events:
        place.instance.report_runless_asset_event(event)
    assert all(isinstance(event, dg.AssetObservation) for event in events)
    return [event for event in events if isinstance(event, dg.AssetObservation)]


def test_the_dispatcher_reports_the_numbers_every_five_minutes(place: Place, clock: Clock) -> None:
    """After the tick that reports them; and not in between."""
    location = a_location()
    place.tick(location)
    place.announce("1", "2")
    clock.second = 299
    assert report(place, location) == [], "it takes the events, and reports nothing"
    clock.second = 300
    (one,) = report(place, location)
    assert one.asset_key == SCHEDULER
    found = plain(one)
    assert "| jobs held by constraints | 1 |" in found.pop("by code location")
    assert found == {
        "jobs waiting for their trigger": 1,
        "jobs held by constraints": 1,
        "oldest wait for constraints (s)": 1,
        "events taken": 2,
        "events taken in the last hour": 2,
    }
    assert report(place, location) == []
    clock.second = 600
    assert len(report(place, location)) == 1
    stored = place.instance.fetch_observations(SCHEDULER, limit=10).records
    assert len(stored) == 2


def test_a_new_code_server_does_not_report_what_was_reported_just_now(place: Place) -> None:
    """Dagster may start a new one each minute, and another location may have reported."""
    assert len(report(place, a_location())) == 1
    assert report(place, a_location()) == []
    assert report(place, a_location(location="there")) == []


def test_reports_make_no_work_of_their_own(place: Place, clock: Clock) -> None:
    """The dispatcher reads its own observation once, and goes back to doing nothing."""
    location = a_location(numbers_every=timedelta(seconds=1))
    first = place.tick(location)
    assert first.skip_message == "created 2"
    assert first.cursor == '{"created": 2}'
    for event in first.asset_events:
        place.instance.report_runless_asset_event(event)
    assert place.tick(location).skip_message == "events 1"
    assert place.tick(location).skip_message == "nothing new and nothing due"
    assert place.states() == []
    clock.second = 1
    result = place.tick(location)
    assert result.skip_message == "nothing new and nothing due"
    assert len(result.asset_events) == 1


def test_a_tick_with_requests_reports_too(place: Place, clock: Clock) -> None:
    """Requests and numbers go together."""
    location = a_location()
    place.tick(location)
    place.announce("1")
    place.tick(location)
    clock.second = 3_600
    result = place.tick(location)
    assert len(result.run_requests or ()) == 1
    assert len(result.asset_events) == 1


def test_numbers_that_cannot_be_read_fail_no_tick(
    place: Place, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick does its work, and tries again five minutes later."""

    def broken(*args: object) -> None:
        raise RuntimeError("no numbers today")

    location = a_location()
    monkeypatch.setattr("arctic_orchestration.schedules.dagster.scheduler_metrics.numbers", broken)
    first = place.tick(location)
    assert (first.skip_message, first.asset_events) == ("created 2", [])


def test_a_person_may_observe_it_at_any_time(place: Place) -> None:
    """A run of the asset reads the same numbers."""
    location = a_location()
    place.tick(location)
    place.announce("1")
    place.tick(location)
    job = location.get_repository_def().get_job("__ASSET_JOB")
    ran = job.execute_in_process(instance=place.instance, asset_selection=[SCHEDULER])
    assert ran.success
    (record,) = place.instance.fetch_observations(SCHEDULER, limit=10).records
    assert record.asset_observation is not None
    assert plain(record.asset_observation)["jobs held by constraints"] == 1


def test_the_numbers_of_two_locations_are_one_history(place: Place, clock: Clock) -> None:
    """Whichever reports: the sums of the cluster, with both locations in the table."""
    here, there = a_location(location="here"), a_location(location="there")
    place.tick(here)
    place.tick(there)
    place.announce("1")
    place.tick(here)
    place.tick(there)
    clock.second = 300
    for (one,) in (report(place, here), report(place, there)):
        assert plain(one)["jobs held by constraints"] == 2
        table = str(plain(one)["by code location"])
        assert "| | here | there |" in table
        assert "| jobs held by constraints | 1 | 1 |" in table


def test_a_location_may_leave_the_numbers_to_another(place: Place) -> None:
    """It has neither the asset nor reports; less than a second is refused."""
    location = a_location(numbers_every=None)
    assert SCHEDULER not in location.get_repository_def().asset_graph.get_all_asset_keys()
    assert place.tick(location).asset_events == []
    with pytest.raises(InvalidDefinition, match=r"numbers_every: .* at least a second"):
        a_location(numbers_every=timedelta(0))
    with pytest.raises(InvalidDefinition, match=r"numbers_every: got 300, expected a timedelta"):
        a_location(numbers_every=300)


def test_it_is_no_target_of_a_selection_of_everything() -> None:
    """A schedule of all assets runs those that are made, not the scheduler's numbers."""

    @dg.asset
    def made() -> None: ...

    location = dg.Definitions.merge(dg.Definitions(assets=[made]), a_location())
    graph = location.get_repository_def().asset_graph
    assert SCHEDULER in graph.get_all_asset_keys()
    assert dg.AssetSelection.all().resolve(graph) == {dg.AssetKey("made")}


def test_a_broken_file_of_notifications_fails_no_tick(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedules are deployed all the same."""
    path = tmp_path / "notifications.yaml"
    path.write_text("channels: [{url: 'nope://x'}]")
    monkeypatch.setenv("ARCTIC_NOTIFICATIONS", str(path))
    assert place.tick(a_location()).skip_message == "created 2"
