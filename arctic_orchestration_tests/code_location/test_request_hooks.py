"""A request hook decides about the run of its own job, and disturbs no other."""

import sys
import time
from collections.abc import Callable

import dagster as dg
import pytest

from arctic_orchestration import Arctic, RequestContext, Schedule, on, request_of
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules import engine
from arctic_orchestration.schedules.dagster import request_hooks
from arctic_orchestration_tests.code_location.conftest import Place


@dg.op(config_schema={"color": dg.Field(str, default_value="none")})
def step() -> None: ...


@dg.job
def work() -> None:
    step()


RED: dict[str, object] = {"ops": {"step": {"config": {"color": "red"}}}}


def chooses(context: RequestContext) -> dg.RunRequest:
    (event,) = context.events
    return dg.RunRequest(run_config=RED, tags={"seen": str(event.partition)})


def skips(context: RequestContext) -> dg.SkipReason:
    return dg.SkipReason(f"{context.schedule} has a holiday")


def breaks(context: RequestContext) -> None:
    raise OSError("no network")


def hangs(context: RequestContext) -> None:
    time.sleep(30)


def oversteps(context: RequestContext) -> dg.RunRequest:
    return dg.RunRequest(tags={"arctic/job": "mine"})


def leaves(context: RequestContext) -> None:
    sys.exit(3)


def is_no_json(context: RequestContext) -> dict[str, object]:
    return {"ops": {"step": {"config": {"color": object()}}}}


def has_a_null_character(context: RequestContext) -> dg.RunRequest:
    return dg.RunRequest(tags={"seen": "a\0b"})


def skips_with_a_null_character(context: RequestContext) -> dg.SkipReason:
    return dg.SkipReason("a\0b")


def lake(*hooks: Callable[[RequestContext], object] | None) -> dg.Definitions:
    schedules = [
        Schedule(
            name=hook.__name__ if hook is not None else "plain",
            target=work,
            trigger=on.partitions("raw/a"),
            request=hook,
            enabled=True,
        )
        for hook in hooks
    ]
    arctic = Arctic(schedules=schedules, numbers_every=None, schedule_assets=False)
    own = dg.Definitions(assets=[dg.AssetSpec(["raw", "a"])], jobs=[work])
    return dg.Definitions.merge(own, arctic.definitions())


def test_each_hook_decides_about_its_own_job(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One chooses, one wants no run, one fails, one hangs, one sets a tag of ours; one is plain."""
    monkeypatch.setattr(request_hooks, "LONGEST_SECONDS", 2.0)
    definitions = lake(chooses, skips, breaks, hangs, oversteps, None)
    place.tick(definitions)
    place.announce("monday")
    result = place.tick(definitions)
    made = {request.tags["arctic/schedule"]: request for request in result.run_requests or ()}
    assert set(made) == {"chooses", "plain"}
    assert made["chooses"].run_config == RED
    assert made["chooses"].tags["seen"] == "monday"
    assert made["plain"].run_config == {}
    states = {name: (state, reason) for name, state, reason in place.states()}
    holiday = "its request hook wants no run: skips has a holiday"
    assert states["skips"] == ("canceled", holiday)
    assert states["breaks"] == ("failed", "its request hook failed: OSError('no network')")
    assert states["hangs"] == ("failed", "its request hook took longer than 2 s")
    assert states["oversteps"][0] == "failed"
    assert "no tag that begins with arctic/" in states["oversteps"][1]


def test_what_a_database_cannot_hold_fails_its_own_job(place: Place) -> None:
    """So does a hook that ends its thread without an answer."""
    hooks = (leaves, is_no_json, has_a_null_character, skips_with_a_null_character, None)
    definitions = lake(*hooks)
    place.tick(definitions)
    place.announce("monday")
    (request,) = place.tick(definitions).run_requests or ()
    assert request.tags["arctic/schedule"] == "plain"
    states = {name: (state, reason) for name, state, reason in place.states()}
    assert states["leaves"] == ("failed", "its request hook failed: SystemExit(3)")
    assert states["is_no_json"][0] == "failed"
    assert "run_config: expected values that JSON can hold" in states["is_no_json"][1]
    assert states["has_a_null_character"][0] == "failed"
    assert "expected text that a database can hold" in states["has_a_null_character"][1]
    skipped = "its request hook wants no run: a\\u0000b"
    assert states["skips_with_a_null_character"] == ("canceled", skipped)


def test_hooks_that_hang_do_not_keep_other_jobs_waiting(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick asks one of them, and hands out the other run; the next tick asks the other."""
    monkeypatch.setattr(request_hooks, "LONGEST_SECONDS", 0.1)
    monkeypatch.setattr(engine, "_HOOK_SECONDS", 0.05)

    def also_hangs(context: RequestContext) -> None:
        time.sleep(30)

    definitions = lake(hangs, also_hangs, None)
    place.tick(definitions)
    place.announce("monday")
    (request,) = place.tick(definitions).run_requests or ()
    assert request.tags["arctic/schedule"] == "plain"
    assert [state for name, state, _ in place.states() if "hangs" in name].count("failed") == 1
    place.tick(definitions)
    assert [state for name, state, _ in place.states() if "hangs" in name] == ["failed"] * 2


def test_two_jobs_of_one_tick_make_one_run_for_a_run_key(place: Place) -> None:
    """As Dagster's sensor: what the first requests is not among Dagster's runs at the second."""

    @dg.asset_sensor(asset_key=dg.AssetKey(["raw", "a"]), job=work)
    def once(context: dg.SensorEvaluationContext) -> dg.RunRequest:
        return dg.RunRequest(run_key="the same")

    schedule = Schedule(
        name="once",
        target=work,
        trigger=on.partitions("raw/a"),
        coalesce=False,
        request=request_of(once),
        enabled=True,
    )
    arctic = Arctic(schedules=[schedule], numbers_every=None, schedule_assets=False)
    own = dg.Definitions(assets=[dg.AssetSpec(["raw", "a"])], jobs=[work])
    definitions = dg.Definitions.merge(own, arctic.definitions())
    place.tick(definitions)
    place.announce("monday")
    place.announce("tuesday")
    (request,) = place.tick(definitions).run_requests or ()
    assert request.tags["adopted/run_key"] == "the same"
    reason = "another job requests a run for the run key the same"
    assert [reason in str(found) for _, state, found in place.states() if state == "canceled"] == [
        True
    ]


def test_a_job_is_asked_about_once(place: Place) -> None:
    """A second hand-out of the same request, in another tick, has what was decided first."""
    asked: list[str] = []

    def counts(context: RequestContext) -> dict[str, object]:
        asked.append(context.job_id)
        return RED

    definitions = lake(counts)
    place.tick(definitions)
    place.announce("monday")
    place.tick(definitions)
    place.tick(definitions)
    assert len(asked) == 1


def test_a_hook_is_no_field() -> None:
    """Neither in the form that is stored, nor in one that is read; and it has to be a function."""
    schedule = Schedule(name="a", target="work", trigger=on.cron("0 4 * * *"), request=skips)
    form = schedule.to_form()
    assert "request" not in form
    assert Schedule.parse(form).request is None
    with pytest.raises(InvalidDefinition, match="a request hook is a function"):
        Schedule.parse({**form, "request": "skips"})
    with pytest.raises(InvalidDefinition, match="request: got 3, expected a function"):
        Schedule(name="a", target="work", trigger=on.cron("0 4 * * *"), request=3)  # type: ignore[arg-type]
