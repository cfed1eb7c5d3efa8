"""The sizes of a table's files over time, as the points of a drawing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from arctic_orchestration.compaction.views.documents import CompactionRecordDocument

WIDTH, HEIGHT = 600, 160


@dataclass(frozen=True, kw_only=True)
class SizeChart:
    """The mean sizes of files before and after each merge.

    Attributes:
        before: ``x,y x,y ...`` of the files that were merged.
        after: the same of the files that were written.
        most: the size at the top, in bytes.
        begin: the moment of the first record.
        end: the moment of the last record.
    """

    before: str
    after: str
    most: int
    begin: datetime
    end: datetime
    width: int = WIDTH
    height: int = HEIGHT


def size_chart(records: Sequence[CompactionRecordDocument]) -> SizeChart | None:
    """Returns the drawing of records; None: there are fewer than two."""
    merges = [one for one in records if one.files_in and one.files_out]
    if len(merges) < 2:
        return None
    merges.sort(key=lambda one: one.at)
    at = [one.at.timestamp() for one in merges]
    before = [one.bytes_in // one.files_in for one in merges]
    after = [one.bytes_out // one.files_out for one in merges]
    most = max(*before, *after, 1)
    span = max(at[-1] - at[0], 1.0)

    def points(sizes: Sequence[int]) -> str:
        return " ".join(
            f"{(moment - at[0]) / span * WIDTH:.1f},{HEIGHT - size / most * HEIGHT:.1f}"
            for moment, size in zip(at, sizes, strict=True)
        )

    return SizeChart(
        before=points(before),
        after=points(after),
        most=most,
        begin=merges[0].at,
        end=merges[-1].at,
    )
