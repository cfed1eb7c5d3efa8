"""A simulation with bounds, in a process of its own: it takes no time from other requests.

As a program it reads the question from its input, and writes the answer: JSON both.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import Any

from arctic_orchestration.errors import InvalidDefinition, InvalidInput, RequestRefused, naming
from arctic_orchestration.quantities import parse_duration
from arctic_orchestration.schedules.inventory import Inventory
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_file import read_schedules
from arctic_orchestration.schedules.simulator import (
    RUN_DURATION,
    TICK,
    DeclaredAssets,
    Timeline,
    declared_by,
    read_declared,
    simulate,
)
from arctic_orchestration.schedules.simulator.lines import parse_moment
from arctic_orchestration.yaml_file import load

#: decisions that are returned
DECISIONS = 1_000
LONGEST = timedelta(days=366)
#: how long a simulation may take, and how many run at once
SECONDS = 20.0
_AT_ONCE = threading.BoundedSemaphore(2)
_MOST_MEMORY = 2 * 2**30
_MODULE = "arctic_orchestration.service.simulation"


def run(question: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Simulates files of schedules over one timeline, in another process.

    Args:
        question: arguments of :func:`answers`, as JSON values.

    Errors:
        InvalidDefinition: names each invalid value.
        InvalidInput: it takes too long.
        RequestRefused: 429, others run.
    """
    if not _AT_ONCE.acquire(blocking=False):
        raise RequestRefused(
            429, "Other simulations run: try again soon", headers={"Retry-After": "5"}
        )
    try:
        done = subprocess.run(
            [sys.executable, "-m", _MODULE],
            input=json.dumps(question).encode(),
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        expected = f"a simulation that takes at most {SECONDS:.0f} s"
        raise InvalidInput("timeline", "...", f"{expected}: less time, or fewer schedules")
    finally:
        _AT_ONCE.release()
    if done.returncode != 0:
        raise RuntimeError(f"simulation ended with {done.returncode}: {done.stderr.decode()}")
    answer = json.loads(done.stdout)
    if "problems" in answer:
        raise InvalidDefinition([InvalidInput(*problem) for problem in answer["problems"]])
    found: list[dict[str, Any]] = answer["answers"]
    return found


def answers(
    files: Sequence[str],
    rows: Sequence[str],
    *,
    tick: str | None = None,
    until: str | None = None,
    run_duration: str | None = None,
    inventory: str | None = None,
) -> list[dict[str, Any]]:
    """Returns the decisions of each file of schedules over the same timeline.

    Args:
        files: texts of files of schedules.
        rows: lines of the timeline.
        tick: the time between ticks.
        until: where it ends; None: when nothing waits.
        run_duration: of a run that no line ends.
        inventory: of the code location whose partitions the files may use.

    Errors:
        InvalidInput, InvalidDefinition: names each invalid value.
    """
    _check_rows(rows)
    happens = Timeline.parse(rows)
    with naming("until", until):
        end = None if until is None else parse_moment(until)
    begin, last = happens.lines[0].at, max(happens.lines[-1].at, end or happens.lines[-1].at)
    if last - begin > LONGEST:
        raise InvalidInput("timeline", f"{last - begin}", f"at most {LONGEST.days} days")
    options: dict[str, Any] = {
        "tick": _duration("tick", tick, TICK),
        "run_duration": _duration("run_duration", run_duration, RUN_DURATION),
        "until": end,
    }
    stored = Inventory.from_json(inventory) if inventory is not None else None
    known = declared_by(stored) if stored is not None else DeclaredAssets()
    return [_answer(text, happens, known, options) for text in files]


def _answer(
    text: str, happens: Timeline, known: DeclaredAssets, options: Mapping[str, Any]
) -> dict[str, Any]:
    declared: list[Schedule] = read_schedules(text, name="schedules")
    assets = read_declared(load(text, name="schedules")).with_those_of(known)
    problems = assets.problems(declared)
    if problems:
        raise InvalidDefinition(problems)
    decisions = simulate(declared, happens, assets=assets, **options)
    found = [decision.to_json() for decision in islice(decisions, DECISIONS + 1)]
    return {"decisions": found[:DECISIONS], "more": len(found) > DECISIONS}


def _check_rows(rows: Sequence[str]) -> None:
    """Refuses lines that name a file, which would be read from this machine."""
    problems = [
        InvalidInput(f"timeline:{number}.do", "deploy", "a line that reads no file")
        for number, row in enumerate(rows, start=1)
        if _deploys(row)
    ]
    if problems:
        raise InvalidDefinition(problems)


def _deploys(row: str) -> bool:
    try:
        line = json.loads(row)
    except (ValueError, RecursionError):
        # The timeline's own parser refuses it.
        return False
    return isinstance(line, dict) and line.get("do") == "deploy"


def _duration(field: str, text: str | None, default: timedelta) -> timedelta:
    with naming(field, text):
        return default if text is None else parse_duration(text)


def main() -> None:
    """Answers one question."""
    with suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        os.nice(10)
    try:
        answer: dict[str, Any] = {"answers": answers(**json.load(sys.stdin))}
    except InvalidInput as error:
        problems = error.problems if isinstance(error, InvalidDefinition) else [error]
        answer = {"problems": [(one.field, one.value, one.expected) for one in problems]}
    except MemoryError:
        answer = {
            "problems": [("timeline", "...", "less time, or fewer schedules: it is too large")]
        }
    json.dump(answer, sys.stdout, default=str)


if __name__ == "__main__":
    main()
