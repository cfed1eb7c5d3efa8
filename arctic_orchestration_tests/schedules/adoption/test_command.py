"""``arctic adopt``, as it is typed."""

import json
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml

from arctic_orchestration.schedules.adoption import cut_over, way_back
from arctic_orchestration.schedules.cli import adopt as cli
from arctic_orchestration.schedules.dagster.adoption.drafts import Drafted
from arctic_orchestration.schedules.dagster.adoption.session import Session
from arctic_orchestration.schedules.imports.draft import Outcome
from arctic_orchestration.state.adoption_tables import adoptions
from arctic_orchestration.state.tables import locations, schedules
from arctic_orchestration_tests.cli.conftest import Outcome as Ended
from arctic_orchestration_tests.cli.conftest import arctic
from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.schedules.adoption.project import LOCATION, Project
from arctic_orchestration_tests.schedules.adoption.test_cut_over import (
    SECONDS,
    partitions_run,
    pass_after,
)

__all__ = ["arctic"]


def owner_of(project: Project) -> str:
    """The command knows the code location by its module."""
    return f"{project.module}/{project.repository.repository.name}"


def ticked_as(project: Project, owner: str) -> None:
    with project.database.begin() as tx:
        tx.execute(sa.update(locations).values(owner=owner))


@pytest.fixture
def adopt(project: Project, arctic: Callable[..., Ended]) -> Callable[..., Ended]:
    return partial(arctic, "adopt", "-m", project.module)


def test_the_command_shadows_compares_and_ends(
    project: Project, adopt: Callable[..., Ended]
) -> None:
    """One line if nothing differs; what is not in shadow, and two steps at once, are refused."""
    project.start("hourly")
    project.daemon_pass()

    owner = owner_of(project)
    refused = adopt("--shadow", "hourly")
    assert refused.code == 2
    ticked = f"those that have are of {project.repository.owner}: if one of them is meant"
    assert f"no dispatcher of {owner} has ticked in cluster default; {ticked}" in refused.err
    ticked_as(project, owner)

    none = "0 differences in 0 decisions of 0 objects in shadow: see arctic adopt --shadow NAME\n"
    assert adopt("diff") == Ended(0, none, "")
    began = adopt("--shadow", "hourly")
    assert began == Ended(0, "hourly: shadowed: the schedule hourly\n", "")
    one = "0 differences in 0 decisions of 1 object in shadow\n"
    assert adopt("diff", "hourly") == Ended(0, one, "")
    refused = adopt("diff", "decided")
    assert (refused.code, "decided is not in shadow" in refused.err) == (2, True)
    refused = adopt("--shadow", "--back", "hourly")
    assert (refused.code, "one of --shadow, --stop-shadow" in refused.err) == (2, True)
    ended = Ended(0, "hourly: Dagster's own again\n", "")
    assert adopt("--stop-shadow", "hourly") == ended
    assert adopt("--stop-shadow", "hourly") == ended


def test_the_command_names_what_is_suspended_and_what_left_the_code(
    project: Project, adopt: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster's was stopped, so the schedule is; later the code has no such object any more.

    A cut-over that --back undoes meanwhile has failed.
    """
    project.daemon_pass()
    ticked_as(project, owner_of(project))
    for _ in range(2):
        adopted = adopt("--cut-over", "hourly")
        assert adopted.code == 0
        assert " ".join(adopted.out.split()) == (
            "hourly: adopted: the schedule hourly, which is suspended "
            "(arctic schedules enable hourly)"
        )
    with monkeypatch.context() as patch:
        patch.setattr(Session, "forward", Session.back)
        undone = adopt("--cut-over", "hourly")
        assert (undone.code, undone.out) == (1, "hourly: Dagster's own again\n")
    assert adopt("--cut-over", "hourly").code == 0
    with project.database.begin() as tx:
        tx.execute(sa.update(adoptions).values(name="gone"))
    refused = adopt("--back", "gone")
    assert refused.code == 2
    message = " ".join(refused.err.split())
    assert f"gone is adopted, and no longer in the code of {project.module}" in message
    assert "no schedule or sensor is called gone1" in adopt("--back", "gone1").err


def test_what_waits_is_exit_code_1_and_the_same_command_goes_on(
    project: Project,
    arctic: Callable[..., Ended],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Five seconds before its tick, a schedule is not stopped; a minute later it is.

    The workspace file gives the module the name that the daemon knows."""
    monkeypatch.setattr(cli, "utc_now", lambda: project.now)
    module = {"module_name": project.module, "location_name": LOCATION}
    workspace = tmp_path / "workspace.yaml"
    workspace.write_text(yaml.safe_dump({"load_from": [{"python_module": module}]}))
    adopt = partial(arctic, "adopt", "-w", str(workspace))
    project.start("hourly")
    project.daemon_pass()
    project.advance(timedelta(minutes=54, seconds=55))
    project.daemon_pass()
    waits = adopt("--cut-over", "hourly", "--wait", "0s")
    assert waits.code == 1
    assert "hourly: prepared; waits: its next tick is at 2026-03-02 11:00:00Z" in waits.out
    assert project.status("hourly") == "RUNNING"
    project.advance(timedelta(minutes=1))
    project.daemon_pass()
    done = adopt("--cut-over", "hourly", "--wait", "0s", "--json")
    assert (done.code, json.loads(done.out)[0]["step"]) == (0, "adopted")
    assert project.status("hourly") == "STOPPED"
    refused = adopt("--back", "hourly", "--wait", "soon")
    assert (refused.code, "--wait: got 'soon', expected" in refused.err) == (2, True)


def test_what_differs_is_cut_over_if_that_is_accepted(
    project: Project, adopt: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shadow of it needs no consent: it launches nothing."""
    project.daemon_pass()
    ticked_as(project, owner_of(project))
    monkeypatch.setattr(Drafted, "outcome", Outcome.APPROXIMATE)
    assert adopt("--shadow", "hourly").code == 0
    refused = adopt("--cut-over", "hourly")
    assert refused.code == 2
    assert "hourly differs" in refused.err
    with project.database.read() as tx:
        assert tx.execute(sa.select(adoptions.c.step)).scalars().all() == ["shadowed"]
    assert adopt("--cut-over", "hourly", "--approximate").code == 0


@pytest.mark.parametrize(
    "change", [("unbind", "lake"), ("rename", "lake", "sea"), ("delete", "lake")], ids="".join
)
def test_a_location_with_adopted_objects_keeps_its_name(
    project: Project,
    adopt: Callable[..., Ended],
    arctic: Callable[..., Ended],
    change: tuple[str, ...],
) -> None:
    """Dagster knows what is stopped by the name of the code location; a shadow is no matter."""
    project.daemon_pass()
    ticked_as(project, owner_of(project))
    assert adopt("--cut-over", "hourly").code == 0
    refused = arctic("locations", *change, "--yes")
    assert refused.code == 2
    assert "hourly of lake would run twice, or never again" in " ".join(refused.err.split())
    assert "arctic adopt --back hourly" in " ".join(refused.err.split())
    with project.database.read() as tx:
        rows = tx.execute(sa.select(locations.c.name, locations.c.owner)).all()
    assert rows == [("lake", owner_of(project))]
    if change[0] == "unbind":
        assert arctic("locations", *change, "--yes", "--force").code == 0
    elif change[0] == "rename":
        # Dagster's runs again; ours only finishes what it has taken.
        with project.database.begin() as tx:
            tx.execute(sa.update(adoptions).values(step="handed over"))
        assert arctic("locations", *change, "--yes").code == 0
    else:
        assert adopt("--back", "hourly").code == 0
        assert adopt("--shadow", "hourly").code == 0
        assert arctic("locations", *change, "--yes").code == 0


def test_each_change_of_a_status_is_recorded(
    project: Project, arctic: Callable[..., Ended]
) -> None:
    """Also the last one, of a schedule that stays because the code declares it."""
    project.start("arrivals")
    project.daemon_pass()
    with closing(project.session()) as session:
        item = session.cut_over("arrivals", shadowed=True)
        item = session.cut_over("arrivals")
        assert (session.forward(item), session.back(item)) == (None, None)
    records = json.loads(arctic("audit", "--json").out)["records"]
    assert [(one["actor"], one["subject"]) for one in records] == [("tester", "arrivals")] * 4
    assert [(one["action"], one["before"], one["after"]) for one in reversed(records)] == [
        (action, {"status": before}, {"status": after})
        for action, before, after in (
            ("shadow", "suspended", "shadowed"),
            ("end shadow", "shadowed", "suspended"),
            ("enable", "suspended", "enabled"),
            ("hand back", "enabled", "suspended"),
        )
    ]


@pytest.mark.parametrize(
    ("deleted", "found", "advice"),
    [
        (False, "hourly", "stop it in Dagster, or hand it back: arctic adopt --back hourly"),
        (True, "arrivals", "hand it back: arctic adopt --back arrivals"),
    ],
)
def test_the_doctor_finds_what_a_user_has_started_again(
    project: Project, arctic: Callable[..., Ended], deleted: bool, found: str, advice: str
) -> None:
    """Dagster evaluates its schedule, beside ours, or alone if ours was deleted; no sensor."""
    project.start("hourly", "arrivals")
    project.daemon_pass()
    with closing(project.session()) as session:
        for name in ("hourly", "arrivals"):
            assert session.forward(session.cut_over(name)) is None
    if deleted:
        assert arctic("schedules", "delete", "hourly", "arrivals", "--yes").code == 0
    assert "adopted" not in arctic("doctor", "--json").out
    project.start("hourly", "arrivals")
    (finding,) = [
        one
        for one in json.loads(arctic("doctor", "--json").out)["findings"]
        if one["check"].startswith("adopted")
    ]
    assert (finding["check"], finding["advice"]) == (f"adopted {found}", advice)


def test_the_doctor_finds_what_runs_nowhere(project: Project, arctic: Callable[..., Ended]) -> None:
    """The commands were killed: one of a cut-over, and one of a way back."""
    project.start("hourly", "arrivals")
    project.daemon_pass()
    with closing(project.session()) as session:
        item = session.cut_over("arrivals")
        assert cut_over.advance(item.place, item.instigator, present(item.adoption())) is None
        item = session.cut_over("hourly")
        assert session.forward(item) is None
        assert way_back.advance(item.place, item.instigator, present(item.adoption())) is None
    found = [
        (one["check"], one["status"], one["advice"])
        for one in json.loads(arctic("doctor", "--json").out)["findings"]
        if one["check"].startswith("adopted")
    ]
    assert found == [
        ("adopted arrivals", "failed", "go on with: arctic adopt --cut-over arrivals"),
        ("adopted hourly", "failed", "go on with: arctic adopt --back hourly"),
    ]


def test_the_code_of_what_has_a_function_is_python_alone(adopt: Callable[..., Ended]) -> None:
    """Its YAML would make runs without asking the function."""
    assert "name: hourly" in adopt("hourly").out
    printed = adopt("decided").out
    assert "request=request_of(decided)" in printed
    assert "name: decided" not in printed
    (of_json,) = json.loads(adopt("decided", "--json").out)
    assert (of_json["needs_python"], of_json["yaml"]) == (True, None)


def test_a_name_that_is_refused_begins_nothing(
    project: Project, adopt: Callable[..., Ended]
) -> None:
    """Neither for itself nor for the names before it."""
    project.daemon_pass()
    ticked_as(project, owner_of(project))
    for wrong in ("hourli", "both", "asset:derived"):
        assert adopt("--cut-over", "hourly", wrong).code == 2
    with project.database.read() as tx:
        assert tx.execute(sa.select(adoptions)).all() == []


def test_an_adopted_schedule_is_not_pruned(
    project: Project, adopt: Callable[..., Ended], arctic: Callable[..., Ended], tmp_path: Path
) -> None:
    """Dagster's own is stopped, and no file names the schedule that the command has made."""
    project.daemon_pass()
    ticked_as(project, owner_of(project))
    assert adopt("--cut-over", "hourly").code == 0
    file = tmp_path / "schedules.yaml"
    file.write_text("schedules: []")
    assert "hourly" not in arctic("schedules", "diff", "--prune", str(file)).out
    assert arctic("schedules", "apply", "--prune", "--yes", str(file)).code == 0
    assert arctic("schedules", "show", "hourly").code == 0


def test_to_delete_an_adopted_schedule_starts_nothing_in_dagster(
    project: Project, adopt: Callable[..., Ended], arctic: Callable[..., Ended]
) -> None:
    """The command says so of what is cut over, and not of what is in shadow."""
    project.daemon_pass()
    ticked_as(project, owner_of(project))
    assert adopt("--cut-over", "hourly").code == 0
    assert adopt("--shadow", "daily").code == 0
    out = " ".join(arctic("schedules", "delete", "hourly", "daily", "--yes").out.split())
    assert out == (
        "hourly was adopted: Dagster's hourly stays stopped until arctic adopt --back hourly "
        "deleted hourly, daily"
    )


def test_what_is_handed_back_takes_nothing_of_another_log(
    project: Project, arctic: Callable[..., Ended]
) -> None:
    """The last event that was ours had the id 1,000 of a log that was given up.

    A job of ours is not launched yet, and the new log has smaller ids."""
    project.start("arrivals")
    project.daemon_pass()
    session = project.session()
    item = session.cut_over("arrivals")
    assert session.forward(item) is None
    project.arrive("raw", "held")
    assert session.back(item) is not None
    with project.database.begin() as tx:
        tx.execute(sa.update(schedules).values(until_event=1_000))
    assert arctic("feed", "restart", LOCATION).code == 0
    pass_after(project, SECONDS)
    project.arrive("raw", "new")
    for _ in range(2):
        pass_after(project, SECONDS)
    assert session.back(item) is None
    assert partitions_run(project) == [("held", "ours"), ("new", "Dagster")]
    session.close()
