"""The dispatcher's tick over a real instance: from what arrived to what Dagster is requested."""

import json
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.definitions.sensor_definition import SensorExecutionData

from arctic_orchestration import Arctic, Schedule, on, only
from arctic_orchestration.schedules.dagster.targets import RepositoryTargets
from arctic_orchestration.state.partition_tables import deferred_arrivals
from arctic_orchestration.state.tables import events, job_history, jobs, schedules
from arctic_orchestration_tests.code_location.conftest import Place
from arctic_orchestration_tests.code_location.lake_of_tests import defs


def requests(*ticks: SensorExecutionData) -> dict[str, list[dg.RunRequest]]:
    """The run requests of ticks by schedule; one that was handed out again counts once."""
    by_key = {request.run_key: request for tick in ticks for request in tick.run_requests or ()}
    found: dict[str, list[dg.RunRequest]] = {}
    for request in by_key.values():
        found.setdefault(request.tags["arctic/schedule"], []).append(request)
    return found


def test_each_schedule_requests_the_runs_that_it_describes(place: Place) -> None:
    """One run for all, a run each, a run of each range, and new partitions of a dynamic asset."""
    assert place.tick(defs).run_requests == []
    place.announce("2026-01-02", "2026-01-01", "feed-1", "2026-01-05")
    first = place.tick(defs)
    found = requests(first, place.tick(defs))
    assert sorted(found) == ["a_day_each", "days_together", "gather_three", "new_feeds"]

    (gathered,) = found["gather_three"]
    assert (gathered.job_name, gathered.partition_key) == ("gather", None)
    assert gathered.asset_selection is None
    assert gathered.tags["arctic/trigger"] == "partitions"

    days = sorted(found["a_day_each"], key=lambda request: str(request.partition_key))
    assert [day.partition_key for day in days] == ["2026-01-01", "2026-01-02", "2026-01-05"]
    assert {day.job_name for day in days} == {"__ASSET_JOB"}
    assert all(day.asset_selection == [dg.AssetKey("daily")] for day in days)

    ranges = {
        request.partition_key
        or (
            request.tags["dagster/asset_partition_range_start"],
            request.tags["dagster/asset_partition_range_end"],
        )
        for request in found["days_together"]
    }
    assert ranges == {("2026-01-01", "2026-01-02"), "2026-01-05"}

    (feed,) = found["new_feeds"]
    assert feed.partition_key == "feed-1"
    (added,) = first.dynamic_partitions_requests or ()
    assert (added.partitions_def_name, list(added.partition_keys)) == ("feeds", ["feed-1"])


def test_a_request_is_repeated_under_its_key_until_its_run_is_seen(place: Place) -> None:
    """Dagster makes one run of a key, however often it is handed out."""
    place.tick(defs)
    place.announce("feed-1")
    first, again = place.tick(defs), place.tick(defs)
    (one,), (two,) = first.run_requests or (), again.run_requests or ()
    assert one.run_key == two.run_key
    assert one.run_key == f"{one.tags['arctic/job']}-1"
    assert again.dynamic_partitions_requests == []
    job = defs.get_repository_def().get_job("__ASSET_JOB")
    ran = job.execute_in_process(
        instance=place.instance,
        asset_selection=one.asset_selection,
        partition_key=one.partition_key,
        tags=place.tags_of(one),
    )
    assert ran.success
    assert place.tick(defs).run_requests == []
    assert [(name, state) for name, state, _ in place.states()] == [
        ("gather_three", "waiting_trigger"),
        ("new_feeds", "succeeded"),
    ]


def test_a_partition_that_the_target_has_not_is_kept_apart(place: Place) -> None:
    """It spends and fails nothing, says why, and the other partitions run."""
    place.tick(defs)
    place.announce("2026-13-01", "2026-01-31")
    found = requests(place.tick(defs), place.tick(defs))
    assert [request.partition_key for request in found["a_day_each"]] == ["2026-01-31"]
    assert [state for _, state, _ in place.states() if state == "failed"] == []
    kept = place.rows(deferred_arrivals, "waits_for", "reason")
    assert set(kept) == {("match", "2026-13-01 maps to no partition of daily")}


def test_broken_metadata_is_still_an_arrival(place: Place) -> None:
    """What cannot be understood stands on the event and in the job's history."""
    place.tick(defs)
    place.announce("feed-1", bytes="a great deal")
    found = requests(place.tick(defs))
    assert [request.partition_key for request in found["new_feeds"]] == ["feed-1"]
    ((_, details),) = place.rows(events, "number", "details")
    assert "a great deal" in details
    reasons = [reason for _, reason in place.rows(job_history, "id", "reason")]
    assert any("a great deal" in reason for reason in reasons), reasons


def test_the_cursor_and_the_skip_message_show_what_a_tick_did(place: Place) -> None:
    """For people who look at the sensor in Dagster's UI."""
    first = place.tick(defs)
    assert first.skip_message == "created 4"
    assert first.cursor == '{"created": 4}'
    assert place.tick(defs).skip_message == "nothing new and nothing due"
    place.announce("nobody waits for this", asset="raw/b")
    assert place.tick(defs).skip_message == "events 1"


def test_the_cursor_and_the_skip_message_name_schedules(place: Place) -> None:
    """What is launched, and what is held and why, also in the idle ticks after it."""
    trigger = on.partitions("raw/a")
    defs = _definitions(
        _schedule("goes", trigger=trigger, enabled=True),
        _schedule("stays", trigger=trigger, constraints=[only.delay("2h")], enabled=True),
    )
    place.tick(defs)
    place.announce("1")
    launched = json.loads(str(place.tick(defs).cursor))
    assert launched["launching"] == ["goes"]
    (reason,) = [reason for name, _, reason in place.states() if name == "stays"]
    assert launched["held_by"] == {"stays": reason}
    assert place.rows(jobs, "state").count(("launching",)) == 1
    with place.database.begin() as tx:
        tx.execute(sa.delete(jobs).where(jobs.c.state == "launching"))
    assert place.tick(defs).skip_message == f"held 1: stays ({reason})"
    assert json.loads(str(place.tick(defs).cursor)) == {"held_by": {"stays": reason}}
    with place.database.begin() as tx:
        tx.execute(sa.delete(jobs))
    assert place.tick(defs).skip_message == "nothing new and nothing due"


def _definitions(*declared: Schedule, **options: Any) -> dg.Definitions:
    @dg.op
    def nothing() -> None: ...

    @dg.job
    def work() -> None:
        nothing()

    arctic = Arctic(schedules=declared, **options)
    return dg.Definitions.merge(
        dg.Definitions(assets=[dg.AssetSpec("raw/a"), dg.AssetSpec("raw/b")], jobs=[work]),
        arctic.definitions(),
    )


def _schedule(name: str, **fields: Any) -> Schedule:
    return Schedule(**{"name": name, "target": "work", "trigger": on.partitions("raw/a"), **fields})


def test_the_first_tick_after_a_change_deploys_it(place: Place) -> None:
    """What is new is created, what differs updated, what is gone deleted, the rest left alone."""
    keep, change, go = _schedule("keep"), _schedule("change"), _schedule("go")
    assert place.tick(_definitions(keep, change, go)).skip_message == "created 3"
    assert place.tick(_definitions(keep, change, go)).skip_message == "nothing new and nothing due"
    changed = _schedule("change", priority=5)
    after = place.tick(_definitions(changed, _schedule("new", enabled=True), keep))
    assert after.skip_message == "created 1, deleted 1, updated 1"
    assert place.rows(schedules, "name", "version", "status") == [
        ("change", 2, "suspended"),
        ("keep", 1, "suspended"),
        ("new", 1, "enabled"),
    ]
    assert place.tick(_definitions()).skip_message == "deleted 3"


def test_two_locations_share_a_database_and_not_their_schedules(place: Place) -> None:
    """Each has names, jobs and a feed position of its own."""
    here, there = (
        _definitions(_schedule("s", enabled=True), location=name) for name in ("here", "there")
    )
    place.tick(here)
    place.announce("1")
    assert len(place.tick(here).run_requests or ()) == 1
    assert place.tick(there).skip_message == "created 1"
    place.announce("2")
    assert len(place.tick(there).run_requests or ()) == 1
    assert len(place.rows(schedules, "id")) == 2


def test_one_dispatcher_that_is_always_on_comes_with_the_definitions() -> None:
    """At the interval that is requested; and the resource by which runs learn what they are for."""
    definitions = _definitions(_schedule("s"), interval_seconds=7)
    (sensor,) = definitions.get_repository_def().sensor_defs
    assert sensor.name == "arctic_dispatcher"
    assert sensor.minimum_interval_seconds == 7
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert "arctic" in definitions.get_repository_def().get_top_level_resources()


def a_location(first_day: str, **fields: Any) -> dg.Definitions:
    """A daily asset from a day on, and two schedules: one of it, and one of something else."""

    @dg.asset(partitions_def=dg.DailyPartitionsDefinition(first_day, end_date="2026-03-01"))
    def daily() -> None: ...

    @dg.asset
    def whole() -> None: ...

    trigger = on.partitions("raw/a")
    each = {"target": {"assets": ["daily"]}, "partitions": "each", **fields}
    schedules = [
        Schedule(name="each", trigger=trigger, enabled=True, **each),
        Schedule(
            name="whole",
            trigger=trigger,
            target={"assets": ["whole"]},
            enabled=True,
            coalesce=False,
        ),
    ]
    return dg.Definitions.merge(
        dg.Definitions(assets=[dg.AssetSpec(["raw", "a"]), daily, whole]),
        Arctic(schedules=schedules).definitions(),
    )


def test_a_partition_that_a_redeployment_took_away_stops_its_job_alone(place: Place) -> None:
    """Dagster would refuse its request in every tick: it is not handed out again.

    The first one may still become a run, so the job does not end at once.
    """
    place.tick(a_location("2026-01-01"))
    place.announce("2026-01-05")
    assert len(place.tick(a_location("2026-01-01")).run_requests or ()) == 2
    place.announce("2026-02-05")
    after = requests(place.tick(a_location("2026-02-01")))
    assert [request.partition_key for request in after["each"]] == ["2026-02-05"]
    assert len(after["whole"]) == 2
    assert ("each", "launching", "partition '2026-01-05' is none of the partitions of daily") in (
        place.states()
    )


def test_a_run_that_only_dagster_knows_to_refuse_fails_its_job_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever Dagster says to one request, the others of the tick are requested."""
    place.tick(a_location("2026-01-01"))
    place.announce("2026-01-05")
    monkeypatch.setattr(RepositoryTargets, "problem", lambda *args: None)
    place.tick(a_location("2026-01-01"))
    after = requests(place.tick(a_location("2026-02-01")))
    assert sorted(after) == ["whole"]
    (reason,) = [reason for _, state, reason in place.states() if state == "failed"]
    assert reason.startswith("Dagster refuses its run: ")


def test_runs_by_partition_of_what_has_none_are_refused_when_built() -> None:
    """``each`` and ``range`` need a target with partitions."""
    wrong = a_location("2026-01-01", target={"assets": ["whole"]})
    with pytest.raises(dg.DagsterInvalidDefinitionError) as caught:
        wrong.get_repository_def().get_all_jobs()
    assert "Schedule(each).partitions: got 'each', expected none: whole has no partitions" in str(
        caught.value.__cause__ or caught.value
    )


def test_a_deployment_without_updates_only_deletes_what_has_no_target_any_more(
    place: Place,
) -> None:
    """``Arctic(update_schedules=False)``: neither what changed nor what is new is stored."""

    @dg.job
    def kept() -> None:
        pass

    @dg.job
    def dropped() -> None:
        pass

    def location(*declared: Schedule, jobs: list[dg.JobDefinition], update: bool) -> dg.Definitions:
        arctic = Arctic(schedules=declared, update_schedules=update)
        raw = dg.AssetSpec("raw/a")
        return dg.Definitions.merge(dg.Definitions(assets=[raw], jobs=jobs), arctic.definitions())

    def on_a(name: str, target: dg.JobDefinition, **fields: Any) -> Schedule:
        return Schedule(name=name, target=target, trigger=on.partitions("raw/a"), **fields)

    place.tick(location(on_a("one", kept), on_a("two", dropped), jobs=[kept, dropped], update=True))
    later = location(
        on_a("one", kept, description="changed"),
        on_a("three", kept),
        jobs=[kept],
        update=False,
    )
    place.tick(later)
    with place.database.read() as tx:
        rows = tx.execute(sa.select(schedules.c.name, schedules.c.version)).all()
    assert [tuple(row) for row in rows] == [("one", 1)]
