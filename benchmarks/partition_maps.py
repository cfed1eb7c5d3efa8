"""How long it takes to map 100,000 arrivals of an hourly asset onto days.

``python -m benchmarks.partition_maps`` prints wall time and the CPU seconds of this process: all
arrivals at once, in the batches in which the dispatcher reads them, and what Dagster's own mapping
takes for one key, which is extrapolated.
"""

import argparse
import platform
import random
import time
from collections.abc import Callable
from datetime import timedelta

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context
from rich.console import Console
from rich.table import Table

from arctic_orchestration.partitioning.key_space import FAR
from arctic_orchestration.partitioning.maps import PartitionMap

#: A call of Dagster for each key is measured for so many.
SAMPLE = 500


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """The wall and CPU seconds of the work."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def one_call_a_key(
    keys: list[str], upstream: dg.PartitionsDefinition, target: dg.PartitionsDefinition
) -> None:
    """What Dagster's mapping answers, key by key."""
    mapping = dg.TimeWindowPartitionMapping()
    with partition_loading_context(FAR):
        for key in keys:
            subset = mapping.get_downstream_partitions_for_partitions(
                upstream.subset_with_partition_keys([key]), upstream, target
            )
            list(subset.get_partition_keys())


def in_batches(partition_map: PartitionMap, keys: list[str], size: int) -> None:
    for place in range(0, len(keys), size):
        partition_map.targets_of(keys[place : place + size])


def rows(zone: str, arrivals: int, batch: int, seed: int) -> dict[str, tuple[float, float]]:
    """Wall and CPU seconds of each way to map the arrivals."""
    hours = dg.HourlyPartitionsDefinition("2015-01-01-00:00", timezone=zone)
    days = dg.DailyPartitionsDefinition("2015-01-01", timezone=zone)
    span = dg.TimeWindow(hours.start, hours.start + timedelta(hours=arrivals))
    keys = list(hours.get_partition_keys_in_time_window(span))
    shuffled = random.Random(seed).sample(keys, len(keys))
    two_days = dg.TimeWindowPartitionMapping(start_offset=-1)
    wall, cpu = measured(lambda: one_call_a_key(shuffled[:SAMPLE], hours, days))
    return {
        "at once, in any order": measured(lambda: PartitionMap(hours, days).targets_of(shuffled)),
        f"in batches of {batch:,}": measured(
            lambda: in_batches(PartitionMap(hours, days), keys, batch)
        ),
        "at once, each onto two days": measured(
            lambda: PartitionMap(hours, days, two_days).targets_of(shuffled)
        ),
        "a call of Dagster for each (extrapolated)": (
            wall * arrivals / SAMPLE,
            cpu * arrivals / SAMPLE,
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrivals", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    table = Table(title=f"{given.arrivals:,} arrivals of an hourly asset, onto days")
    for column in ("zone", "how", "wall s", "CPU s"):
        table.add_column(column, justify="right" if column.endswith(" s") else "left")
    for zone in ("UTC", "Europe/Berlin"):
        for how, seconds in rows(zone, given.arrivals, given.batch, given.seed).items():
            table.add_row(zone, how, *(f"{each:.1f}" for each in seconds))
    console = Console()
    console.print(table)
    console.print(f"Python {platform.python_version()}, Dagster {dg.__version__}")


if __name__ == "__main__":
    main()
