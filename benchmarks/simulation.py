"""How long it takes to simulate a year: 100 schedules, 100,000 events at random moments.

``make bench-simulation`` prints wall time and the CPU seconds of this process, and what the
scheduler decided. The schedules are the sorts that a lake has: so many partitions, so many bytes
or an hour, quiet periods, nightly windows, chains of runs, cron.
"""

import argparse
import cProfile
import json
import platform
import pstats
import random
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.simulator import Timeline, simulate

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)


def schedules(count: int) -> list[Schedule]:
    """A mix of schedules; each listens to an asset of its own, or to the one before it."""
    return [Schedule.parse(_form(number)) for number in range(count)]


def _form(number: int) -> dict[str, Any]:
    asset = f"raw/{number:03}"
    sorts: list[dict[str, Any]] = [
        {"trigger": {"partitions": {"asset": asset, "count": 3}}},
        {
            "trigger": {"partitions": {"asset": asset}},
            "constraints": [
                {"concurrency": {"limit": 1}},
                {"minimum_interval": {"duration": "6h"}},
            ],
        },
        {"trigger": {"data": {"asset": asset, "size": "4GB", "max_wait": "1d"}}},
        {"trigger": {"quiet": {"asset": asset, "duration": "8h", "max_wait": "1d"}}},
        {
            "trigger": {"partitions": {"asset": asset, "count": 5}},
            "constraints": [{"window": {"start": "22:00", "end": "06:00"}}],
        },
        {
            "trigger": {
                "any_of": [
                    {"partitions": {"asset": asset, "count": 4}},
                    {"cron": {"expression": "H 4 * * *"}},
                ]
            }
        },
        {
            "trigger": {"partitions": {"asset": asset, "count": 2}},
            "constraints": [{"delay": {"duration": "10m"}}],
        },
        {
            "trigger": {"partitions": {"asset": asset}},
            "constraints": [{"concurrency": {"limit": 2, "group": "spark"}}],
        },
        {"trigger": {"partitions": {"asset": asset, "count": 10}}, "partitions": "range"},
        {
            "trigger": {
                "all_of": {
                    "of": [
                        {"partitions": {"asset": asset}},
                        {"run": {"job": f"job_{number - 9:03}"}},
                    ],
                    "wait": "12h",
                }
            }
        },
    ]
    return {
        "name": f"schedule_{number:03}",
        "target": {"job": f"job_{number:03}"},
        "timeout": "7d",
        "enabled": True,
        **sorts[number % len(sorts)],
    }


def timeline(events: int, schedules: int, seed: int) -> Timeline:
    """Arrivals at random seconds of a year, each the next partition of a random asset."""
    chosen = random.Random(seed)
    seconds = sorted(chosen.randrange(int(YEAR.total_seconds())) for _ in range(events))
    arrived: Counter[str] = Counter()
    rows = []
    for second in seconds:
        at = (BEGIN + timedelta(seconds=second)).isoformat()
        asset = f"raw/{chosen.randrange(schedules):03}"
        arrived[asset] += 1
        size = chosen.randrange(1_000_000_000)
        line = {
            "at": at,
            "event": "partition",
            "asset": asset,
            "partition": str(arrived[asset]),
            "bytes": size,
        }
        rows.append(json.dumps(line))
    return Timeline.parse(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    given = parser.parse_args()
    console = Console()
    declared = schedules(given.schedules)
    begun = time.perf_counter(), time.process_time()
    lines = timeline(given.events, given.schedules, given.seed)
    read = time.perf_counter(), time.process_time()
    counts: Counter[str] = Counter()
    profile = cProfile.Profile()
    if given.profile:
        profile.enable()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("simulating", total=YEAR.total_seconds())
        for decision in simulate(declared, lines):
            counts[decision.decision] += 1
            if not sum(counts.values()) % 100:
                progress.update(task, completed=(decision.at - BEGIN).total_seconds())
    ended = time.perf_counter(), time.process_time()
    if given.profile:
        profile.disable()
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(45)
    table = Table(title=f"{given.schedules} schedules, {given.events:,} events in a year")
    for column in ("step", "wall s", "CPU s"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for step, before, after in (("read the timeline", begun, read), ("simulate", read, ended)):
        table.add_row(step, *(f"{b - a:.1f}" for a, b in zip(before, after, strict=True)))
    console.print(table)
    console.print(", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items())))
    console.print(f"Python {platform.python_version()} on {platform.machine()}")


if __name__ == "__main__":
    main()
