"""A job that fails, and one beside it that begins all the same."""

import dagster as dg

from arctic_orchestration import Arctic, Freshness, Schedule, fresh_parents
from arctic_orchestration_tests.code_location.conftest import Place
from arctic_orchestration_tests.code_location.tasks_place import Tasks

DAYS = dg.DailyPartitionsDefinition("2026-01-01")

#: one that fails for the first of :data:`DAYS`, and one without partitions, named ``odd``, ``good``
Jobs = tuple[dg.JobDefinition, dg.JobDefinition]


def check_schedules(place: Place, jobs: Jobs, reason: str) -> None:
    """Two schedules fire for a day: one job fails with the reason, the other one is launched."""
    raw = {"partitions": {"asset": "raw/a"}}
    schedules = [
        Schedule(name="odd", trigger=raw, target={"job": "odd"}, partitions="each", enabled=True),
        Schedule(name="good", trigger=raw, target={"job": "good"}, enabled=True),
    ]
    definitions = dg.Definitions.merge(
        dg.Definitions(assets=[dg.AssetSpec(["raw", "a"])], jobs=[*jobs]),
        Arctic(schedules=schedules).definitions(),
    )
    place.tick(definitions)
    place.announce("2026-01-01")
    requests = place.tick(definitions).run_requests or ()
    assert [request.job_name for request in requests] == ["good"]
    states = {name: (state, why) for name, state, why in place.states()}
    assert states["good"][0] == "launching"
    state, why = states["odd"]
    assert state == "failed"
    assert reason in why


def check_tasks(tasks: Tasks, jobs: Jobs, reason: str) -> None:
    """Two tasks are submitted: one fails with the reason, the other one is requested."""
    tasks.declare(Freshness(tasks=[fresh_parents({})(one) for one in jobs]).definitions())
    odd = tasks.submit("odd")
    tasks.submit("good")
    requests = tasks.tick().run_requests or ()
    assert [request.tags["arctic/task"] for request in requests] == ["good"]
    assert tasks.again(odd).state.value == "failed"
    assert reason in tasks.again(odd).reason
