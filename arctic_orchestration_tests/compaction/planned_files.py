"""Files of a table as the tests of planning write them, and what merges would make of them."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from arctic_orchestration.compaction.queue.task import PlannedTask
from arctic_orchestration.lake.file_groups import DeleteFile, DeleteKind, LiveFile
from arctic_orchestration.lake.manifests import LiveFiles

MB = 1_000_000
MIB = 1024 * 1024


def data_file(
    path: str,
    size: int,
    *,
    rows: int = 1000,
    sequence: int = 1,
    partition: tuple[Any, ...] = (),
    spec: int = 0,
    deletes: Iterable[DeleteFile] = (),
    file_format: str = "parquet",
) -> LiveFile:
    """A data file of a snapshot."""
    return LiveFile(
        path=path,
        size=size,
        rows=rows,
        sequence_number=sequence,
        spec_id=spec,
        partition=partition,
        file_format=file_format,
        deletes=tuple(deletes),
    )


def data_files(count: int, size: int, name: str = "f", **facts: Any) -> list[LiveFile]:
    """So many files of one size."""
    return [data_file(f"{name}{number:04}", size, **facts) for number in range(count)]


def delete_file(
    path: str, size: int = 1000, *, rows: int = 1, sequence: int = 2, equality: bool = False
) -> DeleteFile:
    """A delete file."""
    return DeleteFile(
        path=path,
        kind=DeleteKind.EQUALITY if equality else DeleteKind.POSITION,
        size=size,
        rows=rows,
        sequence_number=sequence,
        equality_ids=(1,) if equality else (),
    )


def snapshot(files: Iterable[LiveFile], sequence: int = 9) -> LiveFiles:
    """The files as those of a snapshot."""
    return LiveFiles(snapshot_id=100 + sequence, sequence_number=sequence, files=list(files))


def merged(
    live: LiveFiles, tasks: Iterable[PlannedTask], target: int, sizes: Callable[[], float]
) -> LiveFiles:
    """The next snapshot, once the tasks are committed.

    Outputs have the sequence number that was planned from, so the deletes that were applied are
    gone for them. A group is cut into as many files as come nearest to the target by the size of
    its inputs: one up to one and a half of it, a file alone up to 1.8.

    Args:
        live: what was planned from.
        tasks: of the plan.
        target: the target size.
        sizes: how large the output of each task is, compared with its data files.
    """
    gone: set[str] = set()
    outputs = []
    numbers = itertools.count()
    for task in tasks:
        files = task.group.files
        gone.update(task.paths)
        before = sum(file.size for file in files)
        count = next(n for n in range(1, 1000) if before < (n + 0.5) * target)
        if len(files) == 1 and before <= 1.8 * target:
            count = 1
        size = max(1, int(before * sizes()))
        outputs += [
            data_file(
                f"out-{live.sequence_number}-{next(numbers)}",
                size // count + (place < size % count),
                rows=sum(file.rows for file in files) // count,
                sequence=live.sequence_number,
                partition=files[0].partition,
                spec=files[0].spec_id,
            )
            for place in range(count)
        ]
    kept = [file for file in live.files if file.path not in gone]
    return snapshot([*kept, *outputs], live.sequence_number + 1)
