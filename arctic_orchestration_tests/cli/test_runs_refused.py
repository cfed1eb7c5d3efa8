"""What ``arctic runs`` and ``arctic queues`` refuse: names, levels and surroundings."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from dagster import DagsterRunStatus as Status

from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import OURS, STOCK, RunQueue

Command = Callable[..., Outcome]
MakeQueue = Callable[..., RunQueue]

ON_SQLITE = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


@pytest.mark.parametrize("level", ["high", "1.5", "", "1e3", "99999999", "--1", "-"])
@ON_SQLITE
def test_a_level_that_is_no_whole_number_is_refused(
    ruled: MakeQueue, arctic: Command, level: str
) -> None:
    """And changes nothing."""
    queue = ruled(seconds_per_level=600)
    run = queue.submit("load")
    refused = arctic("runs", "prioritize", run.run_id, level)
    assert refused.code == 2
    expected = "expected a whole number from -1000000 to 1000000"
    assert f"LEVEL: got {level!r}, {expected}" in refused.err
    assert queue.run(run).tags == run.tags


def test_a_run_that_does_not_wait_any_more_gets_no_level(ruled: MakeQueue, arctic: Command) -> None:
    """In progress or ended: the message says which, and no tag is written."""
    queue = ruled(seconds_per_level=600)
    run = queue.submit("load")
    queue.iterate()
    for status, shown in ((Status.STARTED, "STARTED"), (Status.SUCCESS, "SUCCESS")):
        queue.report(run, status)
        refused = arctic("runs", "prioritize", run.run_id, "1")
        assert refused.code == 2
        result = f"run {run.run_id} does not wait in the queue any more: it is {shown}"
        assert result in refused.err
    assert queue.run(run).tags["arctic/level"] == "0"


@ON_SQLITE
def test_a_run_is_named_by_the_beginning_of_its_id(ruled: MakeQueue, arctic: Command) -> None:
    """At least four characters that no other has; ambiguous ones are refused with candidates."""
    queue = ruled(seconds_per_level=600, max_concurrent_runs=0)
    ids = [f"abcd{n}000-0000-4000-8000-00000000000{n}" for n in range(3)]
    for run_id in ids[:2]:
        queue.submit("load", run_id=run_id)
    assert json.loads(arctic("runs", "explain", "abcd1", "--json").out)["run_id"] == ids[1]
    several = arctic("runs", "explain", "abcd")
    assert several.code == 2
    assert f"several runs begin with it: {ids[0]}, {ids[1]}" in several.err
    assert "the first 4 or more characters" in arctic("runs", "explain", "abc").err
    for command in (("explain", "ffff"), ("prioritize", "ffff", "1")):
        unknown = arctic("runs", *command)
        assert unknown.code == 2
        assert "Dagster has no run ffff (see: arctic runs list)" in unknown.err
    # A run that ended is found, too, when none that waits begins alike.
    queue.report(queue.submit("load", run_id=ids[2]), Status.CANCELED)
    assert json.loads(arctic("runs", "explain", "abcd2", "--json").out)["status"] == "CANCELED"
    queue.report(ids[1], Status.CANCELED)
    assert json.loads(arctic("runs", "explain", "abcd", "--json").out)["run_id"] == ids[0]
    queue.report(ids[0], Status.CANCELED)
    assert "several runs begin with it" in arctic("runs", "explain", "abcd").err


COMMANDS = [
    ("runs", "list"),
    ("runs", "explain", "abcd"),
    ("runs", "prioritize", "abcd", "1"),
    ("queues", "list"),
    ("queues", "pause", "low"),
    ("queues", "resume", "low", "--group"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@ON_SQLITE
def test_another_run_coordinator_is_refused_with_what_to_write(
    make_queue: MakeQueue, backend: str, arctic: Command, command: tuple[str, ...]
) -> None:
    """The stock one has neither queues nor reasons."""
    make_queue(backend, STOCK)
    refused = arctic(*command)
    assert refused.code == 2
    assert "The run coordinator is QueuedRunCoordinator, which has no queues" in refused.err
    assert "class: ArcticRunCoordinator" in refused.err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_without_dagster_home_there_is_no_queue(
    arctic: Command, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the variable."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    refused = arctic(*command)
    assert refused.code == 2
    expected = "DAGSTER_HOME is not set: set it to the folder that holds dagster.yaml"
    assert expected in refused.err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@ON_SQLITE
def test_a_state_database_that_is_missing_is_not_made(
    ruled: MakeQueue, arctic: Command, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Looking somewhere else would show a queue without pauses."""
    ruled(seconds_per_level=600)
    file = tmp_path / "elsewhere.db"
    monkeypatch.setenv("ARCTIC_DATABASE_URL", f"sqlite:///{file}")
    refused = arctic(*command)
    assert refused.code == 2
    assert f"There is no state database {file}" in refused.err
    assert "Dagster's daemon has it" in refused.err
    assert not file.exists()


@ON_SQLITE
def test_rules_that_cannot_be_used_are_named(ruled: MakeQueue, arctic: Command) -> None:
    """By their path in dagster.yaml, as the daemon would name them."""
    ruled(groups={"few": {"limit": -1}})
    refused = arctic("runs", "list")
    assert refused.code == 2
    assert "run_coordinator.config.groups.few.limit: got -1" in refused.err


@ON_SQLITE
def test_limits_that_dagster_would_replace_are_refused(
    make_queue: MakeQueue, backend: str, arctic: Command
) -> None:
    """As the daemon refuses them, instead of showing rules that do not hold."""
    config = {**OURS, "config": {"seconds_per_level": 600}}
    make_queue(backend, config, concurrency={"runs": {"max_concurrent_runs": 3}})
    refused = arctic("runs", "list")
    assert refused.code == 2
    assert "concurrency.runs.max_concurrent_runs would silently override" in refused.err
