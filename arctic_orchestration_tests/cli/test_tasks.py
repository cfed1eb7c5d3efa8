"""``arctic tasks list``, ``show``, ``explain``, ``graph`` and ``schema``."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from jsonschema import Draft202012Validator

from arctic_orchestration.freshness import definitions, skip_list, submissions
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.freshness_tables import task_definitions
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.cli.tasked import ON_SQLITE, Tasked, task, tasked, three

__all__ = ["tasked", "three"]

Command = Callable[..., Outcome]


def document(arctic: Command, *arguments: str) -> dict[str, Any]:
    """What a command says to programs."""
    result = arctic("tasks", *arguments, "--json")
    assert result.code == 0, result.err
    found: dict[str, Any] = json.loads(result.out)
    return found


def lines(outcome: Outcome) -> list[list[str]]:
    """The lines of a table, in its columns."""
    assert outcome.code == 0, outcome.err
    split = [line.split("  ") for line in outcome.out.splitlines()]
    return [[cell.strip() for cell in line if cell.strip()] for line in split]


def test_tasks_are_listed_with_how_they_stand(three: Tasked, arctic: Command) -> None:
    """Fresh by their own need; what is being made says by whom."""
    result = arctic("tasks", "list")
    title, _, middle, raw, top = lines(result)
    assert title == ["3 tasks: 2 fresh, 1 never"]
    assert middle[:4] == ["middle", "daily", "lake", "fresh"]
    assert middle[4].startswith("made 1d6h")
    assert middle[4].endswith(", to be at most 48 hours old")
    assert raw[:4] == ["raw", "landing", "feeds", "fresh"]
    assert top[3:] == ["never", "never made, to be made since the start of today (UTC)"]
    assert [one["task"] for one in document(arctic, "list", "--stale")["tasks"]] == ["top"]
    of_batch = document(arctic, "list", "--batch", "landing")["tasks"]
    assert [one["task"] for one in of_batch] == ["raw"]

    three.acquired("top", cluster="west", run="run-9")
    listed = {one["task"]: one for one in document(arctic, "list")["tasks"]}
    assert [one["state"] for one in listed.values()] == ["fresh", "fresh", "running"]
    assert listed["top"]["holder"]["run_id"] == "run-9"
    assert "run run-9 of cluster west, location lake makes it" in arctic("tasks", "list").out


def test_a_task_that_was_not_made_says_so_until_it_is(three: Tasked, arctic: Command) -> None:
    """With the reason; what is fresh nevertheless stays fresh, and a success ends it."""
    with three.database.begin() as tx:
        for name in ("top", "middle"):
            (submission,) = submissions.submit(tx, [name], cluster="default")
            ended = database_time(tx)
            submissions.update(
                tx, submission.id, state="failed", reason="no source", ended_at=ended
            )
    title, _, middle, _, top = lines(arctic("tasks", "list"))
    assert title == ["3 tasks: 2 fresh, 1 failed"]
    assert middle[3] == "fresh"
    assert top[3] == "failed"
    assert top[4].startswith("failed at 20")
    assert top[4].endswith(": no source; never made")
    stands = {one["task"]: one for one in document(arctic, "list")["tasks"]}["top"]
    assert (stands["state"], stands["failed_submission"]["reason"]) == ("failed", "no source")
    three.made("top", 0)
    stands = {one["task"]: one for one in document(arctic, "list")["tasks"]}["top"]
    assert (stands["state"], stands["failed_submission"]) == ("fresh", None)


@ON_SQLITE
def test_a_list_without_tasks_says_so(tasked: Tasked, arctic: Command) -> None:
    """Nothing declared, nothing of that kind, no batch of that name."""
    assert arctic("tasks", "list").out == "no location has declared a task yet\n"
    assert arctic("tasks", "graph").out == "no location has declared a task yet\n"
    refused = arctic("tasks", "show", "top")
    assert refused.code == 2
    assert "no code location has declared a task yet" in refused.err
    tasked.declare(task("raw", 12))
    tasked.made("raw", 1)
    assert arctic("tasks", "list", "--stale").out == "all of them are fresh\n"
    refused = arctic("tasks", "list", "--batch", "hourly")
    assert (refused.code, refused.out) == (2, "")
    assert "no batch has the name 'hourly'; there is: daily" in refused.err


def test_one_task_is_shown_with_edges_submissions_and_history(
    three: Tasked, arctic: Command
) -> None:
    """From both ends of its edges; and what was done with it, with the reasons."""
    with three.database.begin() as tx:
        (submission,) = submissions.submit(tx, ["middle"], cluster="default", by="ann")
    found = document(arctic, "show", "middle")
    assert (found["state"], found["fresh"], found["last_success_cluster"]) == (
        "waiting", True, "west",
    )  # fmt: skip
    assert [(one["parent"], one["fresh"], one["hours"]) for one in found["parents"]] == [
        ("raw", True, 6)
    ]
    assert found["children"] == [
        {"child": "top", "hours": 24, "need": "at most 24 hours old", "fresh": False}
    ]
    assert [one["submission"] for one in found["submissions"]] == [submission.id]
    assert [(event["step"], event["reason"]) for event in found["history"]] == [
        ("submitted", "submitted by ann")
    ]
    (declared,) = found["declared"]
    assert (declared["location"], declared["retries"]) == ("lake", 2)

    text = arctic("tasks", "show", "middle").out
    assert "asset middle of location lake, cluster default, batch daily; 2 retries" in text
    assert "by run run-7 of cluster west" in text
    assert "✗  top" in text
    assert "✓  raw" in text
    assert "submitted by ann" in text


@ON_SQLITE
def test_names_that_no_task_has_are_refused(three: Tasked, arctic: Command) -> None:
    """With those that look like it; a parent that is no task is none."""
    for name in ("tops", "plain"):
        for command in ("show", "explain", "graph"):
            refused = arctic("tasks", command, name)
            assert (refused.code, refused.out) == (2, "")
            assert f"no task has the name '{name}'; there is" in " ".join(refused.err.split())


def test_an_explanation_follows_the_life_of_a_task(three: Tasked, arctic: Command) -> None:
    """Freshness, skip list, parents and what is done about each, holder, what would run."""
    text = arctic("tasks", "explain", "top").out
    assert "top: never\n" in text
    assert "✗ never made, to be made since the start of today (UTC)" in text
    assert "✓ not on the skip list" in text
    assert "✗ middle: made 1d6h" in text
    assert "to be at most 24 hours old; it is submitted first" in text
    assert "? plain: not known here, without DAGSTER_HOME, to be at most 2 hours old" in text
    assert "✓ no run makes it" in text
    assert "2 runs until it is fresh, in this order" in text
    found = document(arctic, "explain", "top")
    assert found["runs"] == ["middle", "top"]
    assert found["waits"] == {"top": ["middle"]}
    assert found["nothing_renews"] == found["will_not_run"] == {}
    text = arctic("tasks", "explain", "middle").out
    assert "submitted now, it would not run: made 1d6h" in text
    assert "by run run-7 of cluster west" in text
    assert "nothing has to run" in text
    text = arctic("tasks", "explain", "raw").out
    assert "it has no parents" in text
    assert "to be at most 12 hours old: fresh until 20" in text


@ON_SQLITE
def test_an_explanation_says_what_stands_in_the_way(three: Tasked, arctic: Command) -> None:
    """A skipped parent; a parent of another location; one that is being made; a submission."""
    with three.database.begin() as tx:
        skip_list.skip(tx, "middle", "the source is wrong", by="ann", cluster="default")
    found = arctic("tasks", "explain", "top").out
    assert "it is skipped, so the task will fail" in found
    assert "2 tasks will not run" in found
    assert "middle: skipped: the source is wrong (by ann)" in found
    assert "top: middle is skipped" in found
    assert "until it is fresh, in this order" not in found
    would = document(arctic, "explain", "top")
    assert would["runs"] == []
    assert would["will_not_run"] == {
        "middle": "skipped: the source is wrong (by ann)", "top": "middle is skipped",
    }  # fmt: skip
    three.made("middle", 60)
    assert "would be skipped: the source is wrong" in arctic("tasks", "explain", "middle").out
    own = arctic("tasks", "explain", "middle").out
    assert "✗ on the skip list: the source is wrong (by ann)" in own
    assert document(arctic, "explain", "top")["nothing_renews"] == {"top": ["middle"]}
    with three.database.begin() as tx:
        skip_list.unskip(tx, "middle", by="ann", cluster="default")
        (submission,) = submissions.submit(tx, ["top"], cluster="default", by="ann")
    three.made("raw", 7)
    found = arctic("tasks", "explain", "middle").out
    assert "it is of location feeds of cluster default, and is waited for 30m" in found
    assert "1 task that no submission here runs" in found
    would = document(arctic, "explain", "middle")
    assert would["runs"] == ["middle"]
    assert would["waited_for"] == {"raw": "of location feeds of cluster default, and waited for"}
    three.acquired("raw", run="run-8", location="feeds")
    found = arctic("tasks", "explain", "middle").out
    assert "raw: made 7h" in found
    assert "run run-8 of cluster default, location feeds makes it" in found
    found = arctic("tasks", "explain", "top").out
    assert f"submission {submission.id} by ann at" in found
    assert "is submitted: submitted by ann; next check at" in found


@ON_SQLITE
def test_a_parent_that_another_version_declares_is_waited_for(
    three: Tasked, arctic: Command
) -> None:
    """Of its declaration no more is known than where it is."""
    with three.database.begin() as tx:
        newer = sa.update(task_definitions).where(task_definitions.c.task == "raw")
        tx.execute(newer.values(spec='{"of_next_version": 1}'))
    three.made("raw", 7)
    result = arctic("tasks", "explain", "middle")
    assert result.code == 0, result.err
    assert "it is of default/feeds, and is waited for 30m" in result.out
    assert "is made by no task" not in result.out


@ON_SQLITE
def test_an_explanation_counts_the_requested_freshness(three: Tasked, arctic: Command) -> None:
    """raw and middle are fresh by their own need, and raw is for middle; not for who submits."""

    def runs(task: str) -> tuple[list[str], dict[str, list[str]]]:
        found = document(arctic, "explain", task)
        return found["runs"], found["waits"]

    def submit(*names: str, **how: Any) -> None:
        with three.database.begin() as tx:
            submissions.submit(tx, names, cluster="default", **how)

    assert runs("raw") == runs("middle") == ([], {})
    # The control: raw is 5 hours old, and has nothing to do for this one.
    submit("raw", freshness_hours=6)
    assert runs("raw") == ([], {})
    submit("raw", freshness_hours=4)
    assert runs("raw") == (["raw"], {})
    assert "1 run until it is fresh" in arctic("tasks", "explain", "raw").out
    submit("middle", force=True)
    # That of raw is another's, and nobody waits for it.
    assert runs("middle") == (["middle"], {})
    submit("middle", "raw", freshness_hours=4)
    assert runs("middle") == (["raw", "middle"], {"middle": ["raw"]})
    with three.database.begin() as tx:
        skip_list.skip(tx, "raw", "no feed", by="ann", cluster="default")
    # It ends at once, and what there is of it is fresh enough for middle.
    assert runs("middle") == (["middle"], {})


def test_the_graph_draws_each_edge_with_its_freshness(three: Tasked, arctic: Command) -> None:
    """What nobody needs at the top; from a task on; the other way around."""
    drawn = arctic("tasks", "graph").out.splitlines()
    assert drawn[0] == "top never made"
    assert drawn[1].startswith("├── ✗ middle made 1d6h")
    assert drawn[2].startswith("│   └── ✓ raw made 5h")
    assert drawn[3].startswith("└── ? plain (asset) not known here")
    assert drawn[4] == "3 tasks, 3 edges, 1 stale"
    assert arctic("tasks", "graph", "middle").out.splitlines()[0].startswith("middle fresh, made ")
    upwards = arctic("tasks", "graph", "raw", "--children").out.splitlines()
    assert [line.split(" made")[0] for line in upwards[:3]] == [
        "raw fresh,",
        "└── ✓ middle",
        "    └── ✗ top",
    ]
    found = document(arctic, "graph", "middle")
    assert [one["task"] for one in found["tasks"]] == ["raw", "middle"]
    assert [(edge["child"], edge["parent"], edge["fresh"]) for edge in found["edges"]] == [
        ("middle", "raw", True)
    ]


@ON_SQLITE
def test_the_graph_has_the_edges_of_all_who_declare_a_task(tasked: Tasked, arctic: Command) -> None:
    """Two locations differ about one parent, agree on one, and one of them has one more."""
    tasked.declare(task("p"), task("q"), task("r"), task("c", 24, p=24, r=12), location="a")
    tasked.declare(task("c", 24, p=1, r=12, q=2), location="b")
    tasked.made("p", 5)
    tasked.made("r", 5)
    found = document(arctic, "graph", "c")["edges"]
    assert [(edge["parent"], edge["hours"], edge["fresh"]) for edge in found] == [
        ("p", 24, True),
        ("r", 12, True),
        ("p", 1, False),
        ("q", 2, False),
    ]
    assert arctic("tasks", "graph", "c").out.splitlines()[-1] == "4 tasks, 4 edges, 2 stale"


@ON_SQLITE
def test_a_deep_and_a_tangled_graph_are_drawn(tasked: Tasked, arctic: Command) -> None:
    """What is drawn already is drawn once more without what is below it; the depth has an end."""
    chain = [task(f"t{i}", 24, **({f"t{i + 1}": 24} if i < 79 else {})) for i in range(80)]
    tasked.declare(*chain, task("a", 24, t0=1), task("b", 24, t0=2))
    drawn = arctic("tasks", "graph").out.splitlines()
    assert drawn[0] == "a never made"
    (end,) = [line for line in drawn if "arctic tasks graph" in line]
    assert end.endswith("1 parent: arctic tasks graph t11")
    (again,) = [line for line in drawn if "drawn above" in line]
    assert again.endswith("1 parent, drawn above")
    assert drawn[-1] == "82 tasks, 81 edges, 81 stale"
    all_of_it = arctic("tasks", "graph", "--depth", "200").out
    assert "arctic tasks graph" not in all_of_it
    assert "t79 never made" in all_of_it


@ON_SQLITE
def test_plain_assets_are_looked_up_in_the_dagster_instance(
    three: Tasked,
    arctic: Command,
    dagster_instance: Callable[[str], dg.DagsterInstance],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By when they were materialized last."""
    instance = dagster_instance("sqlite")
    monkeypatch.setenv("DAGSTER_HOME", instance.root_directory)
    (edge,) = [
        edge for edge in document(arctic, "show", "top")["parents"] if edge["parent"] == "plain"
    ]
    assert (edge["kind"], edge["fresh"], edge["last_success_at"]) == ("asset", False, None)
    # It may be a name that nothing has: the location of its child knows, and nobody else.
    assert edge["exists"] is None
    explained = arctic("tasks", "explain", "top").out
    assert "plain: never made, nor known here to exist, to be at most 2 hours old" in explained
    assert "it is no task, and is waited for 30m" in " ".join(explained.split())
    assert "submitted now, it would wait: waits for middle" in explained
    drawn = arctic("tasks", "graph").out
    assert "✗ plain (asset) never made, nor known here to exist" in drawn
    shown = arctic("tasks", "show", "top").out
    assert "never made, nor known here to exist" in " ".join(shown.split())
    submitted = arctic("tasks", "submit", "top").out
    assert "waits for middle, plain" in " ".join(submitted.split())
    instance.report_runless_asset_event(dg.AssetMaterialization("plain"))
    (edge,) = [
        edge for edge in document(arctic, "show", "top")["parents"] if edge["parent"] == "plain"
    ]
    assert edge["fresh"] is True
    assert edge["exists"] is True
    assert edge["last_success_at"] is not None
    explained = arctic("tasks", "explain", "top").out
    assert "known here to exist" not in explained


def test_the_schema_is_written(arctic: Command, tmp_path: Path) -> None:
    """To the terminal, or into a file; it is a schema."""
    schema = json.loads(arctic("tasks", "schema").out)
    Draft202012Validator.check_schema(schema)
    file = tmp_path / "batch.schema.json"
    assert arctic("tasks", "schema", "--output", str(file)).code == 0
    assert json.loads(file.read_text()) == schema
    refused = arctic("tasks", "schema", "--output", str(tmp_path))
    assert refused.code == 2
    assert "expected a file that can be written" in " ".join(refused.err.split())


@ON_SQLITE
def test_a_location_that_is_not_registered_says_why(three: Tasked, arctic: Command) -> None:
    """The cycle that it would close; in the list, and where one of its tasks is explained."""
    with three.database.begin() as tx:
        closing = [task("raw", 12, top=1).model_copy(update={"batch": "landing"})]
        done = definitions.register(tx, "default", "feeds", closing, database_time(tx))
    assert done.problem is not None
    listed = arctic("tasks", "list").out
    assert "default/feeds: its definitions are not registered" in listed
    assert "raw needs top needs middle needs raw" in listed
    assert "raw needs top" in arctic("tasks", "explain", "raw").out
    trouble = document(arctic, "list")["trouble"]
    assert list(trouble) == ["default/feeds"]


@ON_SQLITE
def test_a_location_whose_sensor_does_not_tick_is_why_nothing_begins(
    three: Tasked, arctic: Command
) -> None:
    """Not yet; for longer than two minutes; and the control, where it has just ticked."""
    with three.database.begin() as tx:
        submissions.submit(tx, ["raw"], cluster="default", force=True)

    def explained(seconds: int | None) -> str:
        if seconds is not None:
            with three.database.begin() as tx:
                at = database_time(tx) - timedelta(seconds=seconds)
                definitions.ticked(tx, "default", "feeds", at)
        return arctic("tasks", "explain", "raw").out

    silence = "default/feeds: its sensor has not ticked"
    assert f"✗ {silence} yet, and begins nothing until it does" in explained(None)
    assert silence not in explained(60)
    # Two hours, and the seconds until the command looks.
    assert f"✗ {silence} for 2h" in explained(7200)
    # The list says it of locations in which something is to be done, and not of ``lake``.
    listed = arctic("tasks", "list").out
    assert f"\n{silence} for 2h" in listed
    assert "default/lake" not in listed
    (place,) = document(arctic, "explain", "raw")["locations"]
    assert (place["cluster"], place["location"]) == ("default", "feeds")
    assert place["ticked_at"] is not None
    assert place["trouble"] is None
