"""``arctic simulate``: JSON lines on the one channel, problems on the other, and exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from arctic_orchestration_tests.patience import PATIENCE_SECONDS

STORIES = Path(__file__).parents[2] / "acceptance" / "stories"


def arctic(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command, as its entry point starts it."""
    return subprocess.run(
        [sys.executable, "-c", "from arctic_orchestration.cli.main import main; main()", "simulate"]
        + [str(argument) for argument in arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_each_decision_is_a_line_of_json() -> None:
    """The story of the join, once more: two runs, of three and of two events."""
    done = arctic(STORIES / "join_or_give_up.yaml", STORIES / "join_or_give_up.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    launched = [line for line in lines if line["decision"] == "launched"]
    assert [(line["at"], line["events"]) for line in launched] == [
        ("2026-03-01T02:15:00Z", 3),
        ("2026-03-02T03:00:00Z", 2),
    ]


def test_options_set_the_grid_the_runs_and_the_end() -> None:
    """Arrival at 03:17:42, ticks each hour from it; runs of 10 h, of which the end is not seen."""
    done = arctic(
        STORIES / "feed_on_arrival.yaml", STORIES / "feed_on_arrival.jsonl",
        "--tick", "1h", "--run-duration", "10h", "--until", "2026-03-02T20:00:00Z",
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["at"], line["decision"]) for line in lines if line["decision"] != "fired"] == [
        ("2026-03-01T03:17:42Z", "deployed"),
        ("2026-03-01T03:17:42Z", "launched"),
        ("2026-03-01T13:17:42Z", "ended"),
        ("2026-03-02T19:17:42Z", "launched"),
    ]


def test_all_problems_of_both_files_are_named_and_nothing_is_printed(tmp_path: Path) -> None:
    """Two in the schedules, two in the timeline: four messages, exit code 2, an empty output."""
    (tmp_path / "s.yaml").write_text(
        "schedules:\n- {name: a, target: {job: a}, trigger: {partitions: {asset: x, count: 0}}}\n"
        "- {name: b, trigger: {partitions: {asset: x}}}\n"
    )
    (tmp_path / "t.jsonl").write_text(
        '{"at": "2026-01-01T00:00:00Z", "do": "advance"}\n'
        '{"at": "yesterday", "do": "advance"}\n{"at": "2026-01-01T00:00:00Z", "do": "nothing"}\n'
    )
    done = arctic(tmp_path / "s.yaml", tmp_path / "t.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    text = done.stderr.replace("\n", " ")
    for named in (
        "schedules[0].trigger.partitions.count: got 0",
        "schedules[1].target",
        "t.jsonl:2.at: got 'yesterday'",
        "t.jsonl:3.do: got 'nothing'",
    ):
        assert named in text


def test_a_line_that_turns_out_wrong_at_its_moment_leaves_no_output_either(
    tmp_path: Path,
) -> None:
    """The run that it ends does not exist then; what was decided before is not printed."""
    timeline = (STORIES / "feed_on_arrival.jsonl").read_text()
    (tmp_path / "t.jsonl").write_text(
        f'{timeline}{{"at": "2026-03-04T00:00:00Z", "do": "end_run", "run_id": "r"}}\n'
    )
    done = arctic(STORIES / "feed_on_arrival.yaml", tmp_path / "t.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert "t.jsonl:4.run_id" in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--tick", "0s"),
        ("--tick", "1"),
        ("--run-duration", "soon"),
        ("--until", "2026-03-05"),
        ("--until", "2026-02-28T00:00:00Z"),
        ("--until", "9999-12-31T00:00:00Z"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(option: str, value: str) -> None:
    """The first line of the story is in March, and moments have a zone."""
    done = arctic(
        STORIES / "feed_on_arrival.yaml", STORIES / "feed_on_arrival.jsonl", option, value
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{option}: got '{value}'" in done.stderr


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Both, when both are missing."""
    done = arctic(tmp_path / "s.yaml", tmp_path / "t.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    text = done.stderr.replace("\n", "")
    assert "SCHEDULES.yaml" in text
    assert "t.jsonl" in text
