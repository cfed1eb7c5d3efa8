"""What docs/operation.md says of a clock that was ahead, carried out."""

import re
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from arctic_orchestration_tests.schedules.adoption.project import Project
from arctic_orchestration_tests.schedules.adoption.test_cut_over import (
    HOUR,
    SECONDS,
    cut_over,
    partitions_run,
    pass_after,
)

PAGE = Path(__file__).parents[3].joinpath("docs/operation.md").read_text(encoding="utf-8")


def ticks(project: Project) -> int:
    """How often Dagster has evaluated our dispatcher."""
    states = project.instance.all_instigator_state()
    (ours,) = [state for state in states if state.name == "arctic_dispatcher"]
    return len(project.instance.get_ticks(ours.instigator_origin_id, ours.selector_id))


def test_the_dispatcher_ticks_at_once_and_an_adopted_sensor_stays_adopted(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster waits for the wrong time. The code of the page is for our sensors alone."""
    project.start("arrivals")
    project.daemon_pass()
    session, _ = cut_over(project, "arrivals")
    session.close()
    pass_after(project, 3 * HOUR)
    before = ticks(project)
    project.advance(timedelta(hours=-2))
    project.restart_daemon()
    pass_after(project, SECONDS)
    assert ticks(project) == before

    code = re.search(r"## A clock that was ahead\n.*?```python\n(.*?)```", PAGE, re.DOTALL)
    assert code is not None
    with monkeypatch.context() as patch:
        # To enter the instance itself would set what only its end sets back.
        patch.setattr(dg.DagsterInstance, "get", lambda: nullcontext(project.instance))
        exec(code[1], {})
    project.start("arrivals")
    project.arrive("raw", "since")
    for _ in range(2):
        pass_after(project, SECONDS)
    assert ticks(project) == before + 2
    assert partitions_run(project) == [("since", "ours")]
