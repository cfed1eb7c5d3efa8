"""The drawing of a table's file sizes."""

from datetime import datetime

from arctic_orchestration.compaction.views.documents import CompactionRecordDocument
from arctic_orchestration.quantities import iso
from arctic_orchestration.service.pages.sizes import size_chart


def record(at: str, *, files: tuple[int, int], size: tuple[int, int]) -> CompactionRecordDocument:
    return CompactionRecordDocument(
        table="t", snapshot_id=1, at=datetime.fromisoformat(at), tasks=[],
        files_in=files[0], files_out=files[1],
        delete_files_removed=0, bytes_in=size[0], bytes_out=size[1], rows=1, rows_deleted=0,
        merge_seconds=1.0, waited_seconds=0.0, ways={},
    )  # fmt: skip


def test_sizes_stand_over_time_from_the_ground_up() -> None:
    """Means of 10 and 100 at noon, 20 and 200 an hour later, 5 and 50 four hours later."""
    chart = size_chart(
        [
            record("2026-01-01T16:00:00Z", files=(10, 1), size=(50, 50)),
            record("2026-01-01T13:00:00Z", files=(10, 1), size=(200, 200)),
            record("2026-01-01T12:00:00Z", files=(10, 1), size=(100, 100)),
        ]
    )
    assert chart is not None
    # 600 wide, 160 high; 200 bytes are at the top, which is 0.
    assert chart.after == "0.0,80.0 150.0,0.0 600.0,120.0"
    assert chart.before == "0.0,152.0 150.0,144.0 600.0,156.0"
    assert (chart.most, iso(chart.begin), iso(chart.end)) == (
        200, "2026-01-01T12:00:00Z", "2026-01-01T16:00:00Z",
    )  # fmt: skip


def test_what_makes_no_line_is_not_drawn() -> None:
    """One record, and those that removed delete files alone."""
    one = record("2026-01-01T12:00:00Z", files=(4, 1), size=(4, 4))
    empty = record("2026-01-01T13:00:00Z", files=(4, 0), size=(4, 0))
    assert size_chart([]) is None
    assert size_chart([one, empty]) is None
    both = size_chart([one, one])
    assert both is not None
    assert both.after == "0.0,0.0 0.0,0.0"
