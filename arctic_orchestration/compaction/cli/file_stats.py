"""Storage metrics of several tables, read at once; a hanging one delays no other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from arctic_orchestration.compaction.cli.context import Lake
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.table_pool import Ended, TableJobs, TablePool
from arctic_orchestration.errors import ArcticError
from arctic_orchestration.quantities import format_duration

if TYPE_CHECKING:
    from arctic_orchestration.lake.manifests import TableNumbers

#: the time limit of a table
PATIENCE = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True)
class ReadTable:
    """The contents of a table's metadata and manifests."""

    #: none: they could not be read
    numbers: "TableNumbers | None" = None
    #: whether its properties enable compaction
    enabled: bool = True
    #: why its metadata could not be read; none: it was read, or did not answer
    error: ArcticError | None = None
    #: why there are no metrics, for people
    trouble: str | None = None


def read_tables(
    lake: Lake, names: Sequence[str], patience: timedelta = PATIENCE
) -> dict[str, ReadTable]:
    """Reads tables by name; does not wait for tables that take longer than ``patience``.

    Errors:
        CatalogUnavailable: the catalog did not answer before any table was read.
    """
    late = f"did not answer within {format_duration(patience)}"
    read = dict.fromkeys(names, ReadTable(trouble=late))
    if not names:
        return read
    # Created once, before several threads use it.
    _ = lake.catalog

    def hear(ended: Ended[ReadTable]) -> bool:
        error = ended.error
        if isinstance(error, ArcticError):
            read[ended.table] = ReadTable(error=error, trouble=_one_line(error))
        elif error is not None:
            raise error
        elif ended.result is not None:
            read[ended.table] = ended.result
        return True

    pool = TablePool(limit=patience)
    # The sum of the time limits of all tables.
    longest = patience * (math.ceil(len(names) / pool.at_once) + 1)
    jobs: TableJobs[ReadTable] = TableJobs(pool)
    jobs.run(names, lambda name: _read(lake, name), hear, longest.total_seconds())
    return read


def _read(lake: Lake, name: str) -> ReadTable:
    from arctic_orchestration.lake.manifests import table_numbers

    table = lake.table(name)
    policy = Policy.or_default(table.properties, name)
    try:
        numbers = table_numbers(
            table, target_bytes=policy.target_size, small_bytes=policy.done_size
        )
    except (ArcticError, OSError) as error:
        return ReadTable(enabled=policy.enabled, trouble=_one_line(error))
    return ReadTable(numbers=numbers, enabled=policy.enabled)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
