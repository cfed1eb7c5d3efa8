"""The assets of schedules: how Dagster's own UI shows a schedule and its state."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration import Arctic, Schedule, on, only
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules import control, job_control
from arctic_orchestration.schedules.dagster import schedule_assets
from arctic_orchestration.schedules.dagster.inventory import inventory_of
from arctic_orchestration.schedules.dagster.run_requests import RunRequests
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.views.schedule_state import schedule_state
from arctic_orchestration.state.tables import jobs
from arctic_orchestration_tests.code_location.conftest import Clock, Place


@dg.op
def nothing() -> None: ...


@dg.job
def work() -> None:
    nothing()


@dg.asset
def made() -> None: ...


def _location(*schedules: Schedule, **options: Any) -> dg.Definitions:
    return dg.Definitions.merge(
        dg.Definitions(assets=[dg.AssetSpec(["raw", "a"]), made], jobs=[work]),
        Arctic(schedules=schedules, numbers_every=None, **options).definitions(),
    )


def _schedule(name: str = "two", **fields: Any) -> Schedule:
    trigger = on.partitions("raw/a", count=2)
    return Schedule(**{"name": name, "target": "work", "trigger": trigger, **fields})


def _observed(place: Place, location: dg.Definitions) -> dict[str, dict[str, Any]]:
    """The metadata that a tick observes, by asset, stored as the daemon stores them."""
    events = place.tick(location).asset_events
    for event in events:
        place.instance.report_runless_asset_event(event)
    return {
        event.asset_key.to_user_string(): {k: v.value for k, v in event.metadata.items()}
        for event in events
    }


def test_a_schedule_shows_its_rule_what_it_listens_to_and_its_target() -> None:
    """As metadata, and without a place in the lineage of the assets."""
    hourly = Schedule(
        name="hourly",
        description="Two parts, or at four",
        target=dg.AssetSelection.assets("made"),
        trigger=on.partitions("raw/a", count=2) | on.cron("0 4 * * *"),
        constraints=[only.concurrency(1)],
    )
    graph = _location(_schedule(), hourly).get_repository_def().asset_graph
    key = dg.AssetKey(["arctic", "schedules", "hourly"])
    node = graph.get(key)
    assert graph.get(dg.AssetKey(["raw", "a"])).child_keys == set()
    assert (node.group_name, node.description) == ("arctic", "Two parts, or at four")
    assert dict(node.metadata) == {
        "target made": dg.MetadataValue.asset(dg.AssetKey("made")),
        "listens to raw/a": dg.MetadataValue.asset(dg.AssetKey(["raw", "a"])),
        "trigger": "any_of (partitions asset raw/a, count 2; cron expression 0 4 * * *)",
        "constraint 1": "concurrency limit 1",
        "timeout": "1d, then discard",
    }
    assert not node.is_executable


def test_a_schedule_shows_what_it_waits_for_and_how_its_jobs_ended(
    place: Place, clock: Clock
) -> None:
    """Each state once, not more often than twice a minute."""
    location = _location(
        _schedule(constraints=[only.delay("1h")], timeout="2d", enabled=True),
        _schedule("other", enabled=False),
    )
    place.tick(location)
    place.announce("1")
    clock.second = 5
    (found,) = _observed(place, location).items()
    assert found[0] == "arctic/schedules/two"
    assert found[1]["state"] == "waiting trigger: 1 of 2 partitions of raw/a have arrived"
    assert found[1]["status"] == "enabled"

    place.announce("2")
    clock.second = 34
    assert _observed(place, location) == {}, "29 seconds later"
    clock.second = 35
    (held,) = _observed(place, location).values()
    assert held["state"].startswith("waiting constraints: ")
    assert "01:00:34" in held["next check"]
    assert held["jobs"].count("\n") == 2, "a header and one job"
    assert held["explanation"].startswith("arctic jobs explain ")
    assert held["explanation"].endswith(" --location=local")
    clock.second = 70
    assert _observed(place, location) == {}, "nothing has changed"


def test_a_tick_that_requests_runs_observes_nothing(place: Place, clock: Clock) -> None:
    """The next one does, even if another process has it."""
    location = _location(_schedule(trigger=on.partitions("raw/a"), enabled=True))
    place.tick(location)
    place.announce("1")
    clock.second = 5
    tick = place.tick(location)
    assert [request.job_name for request in tick.run_requests or ()] == ["work"]
    assert tick.asset_events == []
    (request,) = tick.run_requests or ()
    run = place.instance.create_run_for_job(work, tags=place.tags_of(request))
    starting = dg.DagsterEvent(event_type_value="PIPELINE_STARTING", job_name="work")
    place.instance.report_dagster_event(starting, run_id=run.run_id)
    anew = _location(_schedule(trigger=on.partitions("raw/a"), enabled=True))
    (launched,) = _observed(place, anew).values()
    assert launched["state"].startswith("launched: ")
    assert launched["last run"] == run.run_id
    assert f"| {run.run_id[:8]} |" in launched["jobs"]


def test_a_job_that_fails_without_a_run_leaves_a_trace(
    place: Place, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Dagster refuses has no run in which one would see it."""

    def refuse(*_: object) -> dg.RunRequest:
        raise dg.DagsterInvariantViolationError("too odd")

    location = _location(_schedule(trigger=on.partitions("raw/a"), enabled=True))
    place.tick(location)
    place.announce("1")
    monkeypatch.setattr(RunRequests, "make", refuse)
    clock.second = 5
    assert _observed(place, location) == {}, "it was to be a run"
    (failed,) = _observed(place, location).values()
    assert failed["state"] == "nothing new; the last job failed: Dagster refuses its run: too odd"
    assert "last run" not in failed


def test_a_job_that_a_person_cancels_is_observed(place: Place, clock: Clock) -> None:
    """The command moves it, and not the dispatcher."""
    held = _schedule(trigger=on.partitions("raw/a"), constraints=[only.delay("1h")], enabled=True)
    location = _location(held)
    place.tick(location)
    place.announce("1")
    assert len(_observed(place, location)) == 1
    ((job_id,),) = place.rows(jobs, "id")
    with place.database.begin() as tx:
        job_control.cancel_job(tx, location_by_name(tx, "default", "local"), job_id, clock())
    clock.second = 30
    (canceled,) = _observed(place, location).values()
    assert canceled["state"].startswith("nothing new; the last job discarded: ")


def test_a_schedule_that_is_not_shown_is_not_observed(
    place: Place, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that a command has made has no asset, and costs the tick nothing."""
    location = _location(_schedule(enabled=True))
    place.tick(location)
    with place.database.begin() as tx:
        stored = location_by_name(tx, "default", "local")
        added = [_schedule(f"added-{number}", enabled=True) for number in range(20)]
        control.apply(tx, ScheduleStore(), stored, added, clock())
    place.announce("1")
    read: list[str] = []

    def note(tx: sa.Connection, schedule_id: str) -> Any:
        read.append(schedule_id)
        return schedule_state(tx, schedule_id)

    monkeypatch.setattr(schedule_assets, "schedule_state", note)
    for second in (5, 10, 40):
        clock.second = second
        _observed(place, location)
    assert len(place.states()) == 21, "a job of each schedule"
    assert len(read) == 1


def test_a_schedule_that_is_made_anew_is_observed_again(place: Place, clock: Clock) -> None:
    """Its name is that of the asset; its id is another one."""
    location = _location(_schedule(enabled=True))
    place.tick(location)
    with place.database.begin() as tx:
        stored = location_by_name(tx, "default", "local")
        control.delete(tx, ScheduleStore(), stored, "two", clock())
        control.apply(tx, ScheduleStore(), stored, [_schedule(enabled=True)], clock())
    place.announce("1")
    clock.second = 31
    (waiting,) = _observed(place, location).values()
    assert waiting["state"] == "waiting trigger: 1 of 2 partitions of raw/a have arrived"


@pytest.mark.parametrize(
    ("location", "key"),
    [
        (None, ["arctic", "schedules", "hour.ly-1"]),
        ("ä/ü 🙂|`", ["arctic", "schedules", "ä/ü 🙂|`", "hour.ly-1"]),
    ],
)
def test_the_key_of_a_schedule(location: str | None, key: list[str]) -> None:
    repository = _location(_schedule("hour.ly-1"), location=location).get_repository_def()
    assert repository.asset_graph.has(dg.AssetKey(key))


def test_an_unknown_asset_is_refused_though_the_schedule_has_an_asset() -> None:
    """The dependency of the schedule's own asset does not count as one."""
    location = _location(_schedule(trigger=on.partitions("raw/b")))
    with pytest.raises(dg.DagsterInvalidDefinitionError) as raised:
        location.get_repository_def().load_all_definitions()
    assert isinstance(raised.value.__cause__, InvalidDefinition)
    assert "got 'raw/b', expected one of" in str(raised.value.__cause__)


@pytest.mark.parametrize(
    "selection",
    [
        "key:raw+",
        "group:default+",
        dg.AssetSelection.assets("raw").downstream(),
        dg.AssetSelection.groups("default").downstream(),
    ],
)
def test_selections_of_what_lies_downstream_contain_no_schedule(
    selection: str | dg.AssetSelection,
) -> None:
    """Dagster refuses a job with an asset that no run makes, and so it would be for our targets."""

    @dg.asset
    def raw() -> None: ...

    @dg.asset(deps=[raw])
    def clean() -> None: ...

    target = dg.AssetSelection.assets("raw").downstream(include_self=False)
    own = Arctic(schedules=[Schedule(name="s", target=target, trigger=on.partitions("raw"))])
    nightly = dg.ScheduleDefinition(name="nightly", target=selection, cron_schedule="0 1 * * *")
    job = dg.define_asset_job("reload", selection=selection)
    merged = dg.Definitions.merge(
        dg.Definitions(assets=[raw, clean], jobs=[job], schedules=[nightly]), own.definitions()
    )
    dg.Definitions.validate_loadable(merged)
    made = merged.get_repository_def().get_job("reload").asset_layer.executable_asset_keys
    assert made == {dg.AssetKey("raw"), dg.AssetKey("clean")}


def test_the_checks_of_the_code_are_in_the_inventory() -> None:
    """Whether a function makes one or several of them."""

    @dg.asset_check(asset=["raw", "b"])
    def no_nulls() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.multi_asset_check(
        specs=[dg.AssetCheckSpec("sizes", asset="a"), dg.AssetCheckSpec("no_nulls", asset="a")]
    )
    def several() -> Iterator[dg.AssetCheckResult]:
        yield dg.AssetCheckResult(passed=True, check_name="sizes")

    location = dg.Definitions(
        assets=[dg.AssetSpec("a"), dg.AssetSpec(["raw", "b"])], asset_checks=[no_nulls, several]
    )
    found = inventory_of(location.get_repository_def())
    assert found.checks == {"a": ("no_nulls", "sizes"), "raw/b": ("no_nulls",)}
    assert found.policies == frozenset()


def test_the_inventory_has_the_assets_with_a_freshness_policy() -> None:
    daily = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=1))
    specs = [dg.AssetSpec(["raw", "b"], freshness_policy=daily), dg.AssetSpec("a")]
    found = inventory_of(dg.Definitions(assets=specs).get_repository_def())
    assert found.policies == frozenset({"raw/b"})


@pytest.mark.parametrize(
    ("count", "wanted", "shown"),
    [(200, None, 200), (201, None, 0), (201, True, 201), (2, False, 0)],
)
def test_many_schedules_are_shown_on_request_only(
    count: int, wanted: bool | None, shown: int
) -> None:
    schedules = [_schedule(f"s{number}") for number in range(count)]
    definitions = Arctic(schedules=schedules, schedule_assets=wanted, numbers_every=None)
    assert len(list(definitions.definitions().assets or ())) == shown


def test_the_tag_names_the_branch_that_fired(place: Place) -> None:
    """Of a trigger with children; of a plain one it is the kind."""
    both = on.partitions("raw/a", count=2) | on.run(job="work", count=9) | on.partitions("raw/a")
    location = _location(
        _schedule("plain", trigger=on.partitions("raw/a"), enabled=True),
        _schedule("branches", trigger=both, enabled=True),
    )
    place.tick(location)
    place.announce("1")
    requests = place.tick(location).run_requests or ()
    assert {r.tags["arctic/schedule"]: r.tags["arctic/trigger"] for r in requests} == {
        "plain": "partitions",
        "branches": "partitions raw/a",
    }
