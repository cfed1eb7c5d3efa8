"""The third of the eight scenarios of :mod:`test_scenarios`: what deployments do to schedules.

With updates on and off; schedules removed, changed and added, by the code and manually.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration import Schedule
from arctic_orchestration.schedules import control, deployment
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.stored_schedule import Origin
from arctic_orchestration_tests.acceptance.scenario import MINUTE, Story, schedule

BEFORE = [
    schedule("removed", properties={"version": 1}),
    schedule("changed", properties={"version": 1}),
    schedule("kept", properties={"version": 1}),
]
AFTER = [
    schedule("changed", properties={"version": 2}),
    schedule("kept", properties={"version": 1}),
    schedule("added", properties={"version": 2}),
]


def _versions(story: Story) -> dict[str, Any]:
    return {
        name: found.schedule.properties["version"] for name, found in sorted(story.stored().items())
    }


def test_a_deployment_with_updates_removes_changes_and_adds(story: Story) -> None:
    """The next partition runs what is declared now, and nothing else."""
    story.deploy(*BEFORE)
    story.deploy(*AFTER)
    assert _versions(story) == {"added": 2, "changed": 2, "kept": 1}
    assert {name: found.version for name, found in story.stored().items()} == {
        "added": 1,
        "changed": 2,
        "kept": 1,
    }
    story.arrive("p0")
    assert {run.schedule: run.properties for run in story.launches} == {
        "added": {"version": 2},
        "changed": {"version": 2},
        "kept": {"version": 1},
    }


def test_a_deployment_without_updates_leaves_removed_changed_and_added_alone(
    story: Story,
) -> None:
    """The next partition runs what was declared before; a deployment with updates mends it."""
    story.deploy(*BEFORE)
    story.deploy(*AFTER, update_schedules=False)
    assert _versions(story) == {"changed": 1, "kept": 1, "removed": 1}
    story.arrive("p0")
    assert {run.schedule: run.properties for run in story.launches} == {
        "removed": {"version": 1},
        "changed": {"version": 1},
        "kept": {"version": 1},
    }
    story.deploy(*AFTER)
    assert _versions(story) == {"added": 2, "changed": 2, "kept": 1}


def test_the_very_first_deployment_without_updates_makes_nothing(story: Story) -> None:
    """False changes nothing, not even a store that has no schedule yet."""
    story.deploy(*BEFORE, update_schedules=False)
    assert story.stored() == {}


def test_a_deployment_keeps_the_status_that_a_person_gave(story: Story) -> None:
    """A suspended schedule that is updated stays suspended, and an enabled one enabled."""
    story.deploy(*BEFORE)
    story.do(control.suspend, "changed")
    story.do(control.suspend, "kept")
    story.deploy(*AFTER)
    assert {name: found.status.value for name, found in story.stored().items()} == {
        "added": "enabled",
        "changed": "suspended",
        "kept": "suspended",
    }
    story.arrive("p0")
    assert [run.schedule for run in story.launches] == ["added"]
    # It is a matter of the first deployment only whether the code says enabled.
    story.do(control.enable, "kept")
    story.deploy(AFTER[0], schedule("kept", properties={"version": 3}, enabled=False))
    assert story.stored()["kept"].status.value == "enabled"


def test_what_a_deployment_does_not_change_goes_on_waiting(story: Story) -> None:
    """Two of three have arrived; a deployment that changes another schedule; the third: a run."""
    waiting = schedule("kept", count=3)
    story.deploy(waiting, schedule("changed", count=3))
    story.arrive("p0", "p1")
    story.deploy(waiting, schedule("changed", count=3, properties={"version": 2}))
    story.arrive("p2")
    assert [(run.schedule, run.partitions) for run in story.launches] == [
        ("kept", ["p0", "p1", "p2"])
    ]


def test_a_schedule_of_the_code_changed_manually_is_kept_by_false_and_set_back_by_true(
    story: Story,
) -> None:
    """It stays the code's, whoever changed it last."""
    story.deploy(*BEFORE)
    story.apply(schedule("changed", properties={"version": "by hand"}))
    assert story.stored()["changed"].origin is Origin.CODE
    story.deploy(*BEFORE, update_schedules=False)
    assert _versions(story) == {"changed": "by hand", "kept": 1, "removed": 1}
    story.arrive("p0")
    story.deploy(*AFTER)
    story.until(MINUTE)
    story.arrive("p1")
    assert [run.properties["version"] for run in story.launches if run.schedule == "changed"] == [
        "by hand",
        2,
    ]


def test_a_code_location_that_only_starts_again_deploys_nothing(story: Story) -> None:
    """Its definitions did not change, so what was changed manually stays; until they do."""
    story.deploy(*BEFORE)
    story.apply(schedule("changed", properties={"version": "by hand"}))
    story.deploy(*BEFORE)
    assert _versions(story) == {"changed": "by hand", "kept": 1, "removed": 1}
    story.deploy(*BEFORE, schedule("added", properties={"version": 1}))
    assert _versions(story) == {"added": 1, "changed": 1, "kept": 1, "removed": 1}


@pytest.mark.parametrize("update_schedules", [True, False])
def test_what_was_created_manually_is_touched_by_no_deployment(
    story: Story, update_schedules: bool
) -> None:
    """Neither removed for not being declared, nor set back for having a declared name."""
    story.deploy(*BEFORE)
    story.apply(
        schedule("own", properties={"version": "own"}),
        schedule("added", properties={"version": "own"}),
    )
    before = {name: story.stored()[name] for name in ("own", "added")}
    story.targets.gone.add("no such job")
    story.deploy(*AFTER, update_schedules=update_schedules)
    assert {name: story.stored()[name] for name in ("own", "added")} == before
    assert {found.origin for found in before.values()} == {Origin.API}
    story.arrive("p0")
    assert {"own", "added"} <= {run.schedule for run in story.launches}


def test_without_updates_only_schedules_of_the_code_whose_target_is_gone_are_deleted(
    story: Story,
) -> None:
    """With their waiting jobs; the same target, created manually, stays, for the person to mend."""
    story.deploy(
        schedule("lost", target="old_rollup", count=2, properties={"version": 1}),
        schedule("changed", properties={"version": 1}, count=2),
    )
    story.apply(schedule("own", target="old_rollup", count=2, properties={"version": "own"}))
    story.arrive("p0")
    assert story.job_states() == ["waiting_trigger"] * 3
    story.targets.gone.add("old_rollup")
    story.deploy(schedule("changed", properties={"version": 2}), update_schedules=False)
    assert _versions(story) == {"changed": 1, "own": "own"}
    assert story.job_states() == ["waiting_trigger"] * 2


def test_deploy_itself_says_what_it_did(story: Story) -> None:
    """The counts of a deployment, as its caller sees them."""

    def deployed(
        tx: sa.Connection,
        store: Any,
        location: Location,
        declared: Sequence[Schedule],
        now: Any,
        *,
        update_schedules: bool,
    ) -> dict[str, int]:
        exists = story.targets.exists
        done = deployment.deploy(
            tx, store, location, declared, "digest", now,
            update_schedules=update_schedules, exists=exists,
        )  # fmt: skip
        return {name: count for name, count in done.counts.items() if count}

    assert story.do(deployed, BEFORE, update_schedules=True) == {"created": 3}
    assert story.do(deployed, AFTER, update_schedules=False) == {}
    assert story.do(deployed, AFTER, update_schedules=True) == {
        "created": 1,
        "updated": 1,
        "deleted": 1,
    }
    story.targets.gone.add("rollup")
    assert story.do(deployed, AFTER, update_schedules=False) == {"deleted": 3}
