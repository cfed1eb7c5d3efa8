"""``idle``: no run of some assets or jobs is in progress."""

from collections.abc import Callable, Sequence
from typing import Any

from arctic_orchestration.schedules.constraints import Decision, only
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration_tests.schedules.constraints.known import NOW, Known
from arctic_orchestration_tests.schedules.simulated import World


def test_it_holds_while_a_run_makes_one_of_the_assets() -> None:
    """The reason names what is busy, and a release of exactly that wakes the job."""
    facts = Known(held={"asset:default/here/b": {"run-1"}, "asset:default/here/c": {"run-2"}})
    assert only.idle("a").decide(facts, NOW).decision is Decision.ADMIT
    verdict = only.idle(["a", "b"]).decide(facts, NOW)
    assert verdict.decision is Decision.HOLD
    assert verdict.reason == "a run of asset b is in progress"
    assert verdict.waits_for == ("asset:default/here/b",)
    canceling = only.idle(jobs="x", otherwise="cancel")
    facts.held["job:default/here/x"] = {"run-3"}
    assert canceling.decide(facts, NOW).decision is Decision.CANCEL
    assert canceling.decide(facts, NOW).reason == "a run of job x is in progress"


def test_without_names_it_is_about_the_assets_of_the_trigger() -> None:
    """With jobs alone it is not."""
    facts = Known(held={"asset:default/here/b": {"run-1"}}, trigger_assets=("a", "b"))
    assert only.idle().decide(facts, NOW).reason == "a run of asset b is in progress"
    assert only.idle(jobs="x").decide(facts, NOW).reason == "no run of job x is in progress"


def test_a_manual_run_holds_the_job_until_it_ends(
    world: Callable[[Sequence[Schedule]], World],
) -> None:
    """An own run of the schedule is not counted: two of them run at once."""
    here = world(
        [
            Schedule(
                name="s",
                target="s",
                trigger=on.partitions("a"),
                constraints=[only.idle(jobs="ingest")],
                enabled=True,
            )
        ]
    )
    here.dagster.start("ingest", "manual")
    here.feed.arrive("a", "1")
    assert here.tick(1) == []
    here.dagster.end("manual")
    assert here.tick(2) == ["run-1"]
    here.feed.arrive("a", "2")
    assert here.tick(3) == ["run-2"]


def test_a_job_that_was_just_admitted_is_in_progress(
    world: Callable[[Sequence[Schedule]], World],
) -> None:
    """Both are due at one check: the first one's run is on its way, so the other one waits."""
    common: dict[str, Any] = {"trigger": on.partitions("a"), "enabled": True}
    here = world(
        [
            Schedule(name="first", target="ingest", priority=1, **common),
            Schedule(name="s", target="s", constraints=[only.idle(jobs="ingest")], **common),
        ]
    )
    here.feed.arrive("a", "1")
    assert here.tick(1) == ["run-1"]
    here.dagster.end("run-1")
    assert here.tick(2) == ["run-2"]
