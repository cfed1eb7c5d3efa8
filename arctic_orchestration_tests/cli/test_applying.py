"""``arctic schedules apply``, ``diff`` and ``update``: files of schedules."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.schedules import control, inventory
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.cli import apply
from arctic_orchestration.schedules.inventory import Inventory
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.tables import schedules
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.cli.pseudo_terminal import printed_in_terminal
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at

Command = Callable[..., Outcome]

FILE = """
schedules:
- name: changed
  target: {job: rollup}
  trigger: {partitions: {asset: raw/a, count: 5}}
- name: new
  target: {assets: [b]}
  trigger: {cron: {expression: 0 4 * * *}}
- name: same
  target: {job: rollup}
  trigger: {run: {job: x}}
"""

CODE = Inventory(
    jobs=frozenset({"rollup", "x"}),
    assets={"raw/a": None, "b": None},
    executable=frozenset({"b"}),
)


def schedule(name: str, **fields: Any) -> Schedule:
    fields = {"target": "rollup", "trigger": on.partitions("raw/a", count=3), **fields}
    return Schedule(name=name, **fields)


@pytest.fixture
def here(world: MakeWorld) -> World:
    """A location with what the file changes, what it leaves alone, and what it does not name."""
    made = world([schedule("changed"), schedule("same", trigger=on.run("x"))])
    with made.database.begin() as tx:
        place = locations.locked(tx, "default", "here")
        control.apply(tx, ScheduleStore(), place, [schedule("by_hand")], at(1))
        inventory.store(tx, place, CODE, at(1))
    return made


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "schedules.yaml"
    path.write_text(FILE)
    return str(path)


def versions(world: World) -> dict[str, int]:
    with world.database.read() as tx:
        return {row.name: row.version for row in tx.execute(sa.select(schedules))}


BEFORE = {"by_hand": 1, "changed": 1, "same": 1}
AFTER = {"by_hand": 1, "changed": 2, "new": 1, "same": 1}


def test_a_difference_is_shown_and_is_exit_code_1(here: World, arctic: Command, file: str) -> None:
    """As with diff(1); after it was applied there is none, and the code is 0."""
    result = arctic("schedules", "diff", file)
    assert result.code == 1
    assert result.out.splitlines() == [
        "+ new  cron expression 0 4 * * *, suspended until: schedules enable new",
        "~ changed  version 1, declared in the code",
        "    trigger.partitions.count: 3 → 5",
        "Waiting jobs of what is updated are discarded.",
        "What the code declares is set back by a deployment that updates it.",
        "1 new, 1 updated, 1 unchanged",
    ]
    assert versions(here) == BEFORE
    assert arctic("schedules", "apply", file, "--yes").code == 0
    again = arctic("schedules", "diff", file)
    assert (again.code, again.out) == (0, "3 unchanged\n")


def test_apply_shows_the_difference_first_and_requires_a_confirmation(
    here: World, arctic: Command, file: str, typed: Callable[[str], None]
) -> None:
    """No: nothing happens, exit code 1. Yes: all of it."""
    typed("n\n")
    declined = arctic("schedules", "apply", file)
    assert declined.code == 1
    assert declined.out.index("trigger.partitions.count: 3 → 5") < declined.out.index("Apply?")
    assert versions(here) == BEFORE
    typed("y\n")
    agreed = arctic("schedules", "apply", file)
    assert agreed.code == 0
    assert agreed.out.endswith("applied\n")
    assert versions(here) == AFTER


def test_without_a_terminal_yes_is_required(
    here: World, arctic: Command, file: str, piped: Callable[[str], None]
) -> None:
    """Exit code 2, and nothing was changed; a file from standard input is such a case."""
    refused = arctic("schedules", "apply", file)
    assert refused.code == 2
    assert "confirmation: got 'no terminal', expected --yes" in refused.err
    piped(FILE)
    assert arctic("schedules", "apply", "-").code == 2
    assert versions(here) == BEFORE
    piped(FILE)
    assert arctic("schedules", "apply", "-", "--yes").code == 0
    assert versions(here) == AFTER


def test_a_dry_run_changes_nothing(here: World, arctic: Command, file: str) -> None:
    """It needs no yes."""
    result = arctic("schedules", "apply", file, "--dry-run")
    assert (result.code, result.out.splitlines()[-1]) == (0, "nothing was changed: --dry-run")
    assert versions(here) == BEFORE


def test_prune_deletes_what_was_created_manually(here: World, arctic: Command, file: str) -> None:
    """Not what the code declares."""
    assert "- by_hand  deleted with its jobs" in arctic("schedules", "diff", file, "--prune").out
    assert arctic("schedules", "apply", file, "--prune", "--yes").code == 0
    assert set(versions(here)) == {"changed", "new", "same"}


def test_programs_get_one_document(here: World, arctic: Command, file: str) -> None:
    """With each field that differs."""
    result = arctic("schedules", "apply", file, "--yes", "--json")
    document = json.loads(result.out)
    assert document["applied"] is True
    difference = document["difference"]
    assert [made["name"] for made in difference["created"]] == ["new"]
    assert difference["updated"] == [
        {
            "name": "changed",
            "version": 1,
            "origin": "code",
            "fields": [{"path": "trigger.partitions.count", "old": 3, "new": 5}],
            "problem": None,
        }
    ]
    assert (difference["deleted"], difference["unchanged"]) == ([], ["same"])
    again = json.loads(arctic("schedules", "apply", file, "--json").out)
    assert again["applied"] is False


def test_one_bad_schedule_refuses_the_whole_file(here: World, arctic: Command, file: str) -> None:
    """All problems are named, with their paths."""
    text = FILE.replace("count: 5", "count: 0").replace("0 4 * * *", "0 4 * *")
    Path(file).write_text(text)
    for command in ("apply", "diff"):
        refused = arctic("schedules", command, file)
        assert refused.code == 2
        assert "schedules[0].trigger.partitions.count: got 0" in refused.err
        assert "schedules[1].trigger.cron.expression: got '0 4 * *'" in refused.err
    assert versions(here) == BEFORE


def test_a_file_that_cannot_be_read_is_one_message(
    here: World, arctic: Command, tmp_path: Path
) -> None:
    """With the reason; bad YAML with its line."""
    absent = arctic("schedules", "apply", str(tmp_path / "absent.yaml"))
    assert absent.code == 2
    assert "expected a file that can be read (No such file or directory)" in absent.err
    broken = tmp_path / "broken.yaml"
    broken.write_text("schedules:\n- name: [\n")
    assert f"{broken}:3:1" in arctic("schedules", "diff", str(broken)).err
    broken.write_bytes(b"schedules: \xff")
    assert "expected a file of UTF-8 text" in arctic("schedules", "diff", str(broken)).err


def test_a_change_while_the_person_thinks_stops_the_apply(
    here: World, arctic: Command, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is applied is what was shown, or nothing."""

    def thinking(*arguments: object, **options: object) -> None:
        with here.database.begin() as tx:
            place = locations.locked(tx, "default", "here")
            control.apply(tx, ScheduleStore(), place, [schedule("changed", priority=1)], at(5))

    monkeypatch.setattr(apply, "confirm", thinking)
    refused = arctic("schedules", "apply", file)
    assert refused.code == 2
    assert "were changed meanwhile" in refused.err
    assert versions(here) == {**BEFORE, "changed": 2}


def test_one_schedule_is_updated_from_a_file(
    here: World, arctic: Command, file: str, tmp_path: Path
) -> None:
    """It must be there, and keeps its name."""
    assert arctic("schedules", "update", "changed", file, "--yes").code == 0
    assert versions(here) == {**BEFORE, "changed": 2}
    missing = arctic("schedules", "update", "new", file, "--yes")
    assert missing.code == 2
    assert "location here has no schedule new" in missing.err
    alone = tmp_path / "alone.json"
    alone.write_text(json.dumps(schedule("other").to_form()))
    refused = arctic("schedules", "update", "changed", str(alone), "--yes")
    assert "name: got 'other', expected changed: a schedule keeps its name" in refused.err
    assert versions(here) == {**BEFORE, "changed": 2}


def test_a_change_of_enabled_says_that_the_status_is_kept(
    here: World, arctic: Command, tmp_path: Path
) -> None:
    """Since a schedule that is there keeps it."""
    form = schedule("by_hand", enabled=True).to_form()
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"schedules": [form]}))
    result = arctic("schedules", "diff", str(path))
    assert "its status is kept; to change it: schedules enable by_hand" in result.out


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_in_a_real_terminal_the_confirmation_is_read_there(here: World, file: str) -> None:
    """Through a pseudo-terminal and the console script's own function."""
    output = printed_in_terminal(
        *("schedules", "apply", file),
        environment={**os.environ, "COLUMNS": "100", "TERM": "xterm"},
        types=b"y\n",
    )
    assert b"Apply? [y/N]" in output
    assert versions(here) == AFTER


def test_what_is_seldom_meant_is_a_warning(here: World, arctic: Command, tmp_path: Path) -> None:
    """Beside the difference, and for programs; it is applied all the same."""
    path = tmp_path / "slow.yaml"
    path.write_text(
        "schedules: [{name: slow, target: {job: x}, constraints: [{delay: {duration: 6h}}],"
        " trigger: {partitions: {asset: raw/a, count: 3}}}]"
    )
    result = arctic("schedules", "diff", str(path))
    assert "warning: Schedule(slow).timeout: not set, so 1d from the first event." in result.out
    result = arctic("schedules", "apply", str(path), "--yes", "--json")
    (warning,) = json.loads(result.out)["warnings"]
    assert warning.startswith("Schedule(slow).timeout: not set")
    assert result.code == 0


def test_a_target_that_is_not_there_is_refused(
    here: World, arctic: Command, tmp_path: Path
) -> None:
    """By apply, update and diff, with the nearest name; nothing of the file is applied."""
    path = tmp_path / "typo.yaml"
    path.write_text(FILE.replace("  target: {assets: [b]}", "  target: {job: rolup}"))
    for command in (["apply", str(path), "--yes"], ["diff", str(path)]):
        refused = arctic("schedules", *command)
        assert refused.code == 2
        assert "Schedule(new).target.job: got 'rolup'" in refused.err
        assert "did you mean rollup?" in refused.err
    assert versions(here) == BEFORE
    path.write_text(FILE.replace("asset: raw/a, count: 5", "asset: raw/aa, count: 5"))
    result = arctic("schedules", "apply", str(path), "--yes")
    assert result.code == 0
    assert "warning: Schedule(changed).trigger.partitions.asset: got 'raw/aa'" in result.out
    assert versions(here) == AFTER
