"""Which snapshots and refs have had their time, on histories that are written down manually.

Snapshot 1 is a day old and snapshot 10 is ten days old; a history is given from its head backwards.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import LongType, NestedField

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.lake.upkeep.expiry import default_keep_last, default_older_than, expiry

NOW = datetime(2026, 1, 31, tzinfo=UTC)
DAY_MS = 24 * 60 * 60 * 1000


def days(count: float) -> timedelta:
    return timedelta(days=count)


def history(
    *branches: Sequence[int],
    refs: dict[str, dict[str, Any]],
    properties: dict[str, str] | None = None,
) -> TableMetadata:
    """A table whose snapshots are named by their age in days; each branch from its head on."""
    parents: dict[int, int | None] = {}
    for branch in branches:
        for head, parent in zip(branch, [*branch[1:], None], strict=True):
            parents[head] = parents.get(head) or parent
    made = new_table_metadata(
        Schema(NestedField(1, "id", LongType())),
        PartitionSpec(),
        SortOrder(),
        "/lake/table",
        properties or {},
    ).model_dump(by_alias=True, mode="json")
    made["snapshots"] = [
        {
            "snapshot-id": age,
            "parent-snapshot-id": parent,
            "sequence-number": 100 - age,
            "timestamp-ms": int((NOW - days(age)).timestamp() * 1000),
            "manifest-list": f"/lake/table/metadata/{age}.avro",
            "summary": {"operation": "append"},
        }
        for age, parent in parents.items()
    ]
    made["refs"] = refs
    made["current-snapshot-id"] = refs["main"]["snapshot-id"] if "main" in refs else None
    made["last-sequence-number"] = 100
    return TableMetadataUtil.parse_obj(made)


def branch(head: int, **limits: int) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in limits.items()}
    return {"snapshot-id": head, "type": "branch", **named}


def tag(snapshot: int, **limits: int) -> dict[str, Any]:
    return {**branch(snapshot, **limits), "type": "tag"}


def gone(
    metadata: TableMetadata, older_than: float, keep_last: int = 1, keep: Sequence[int] = ()
) -> tuple[list[int], tuple[str, ...]]:
    over = expiry(
        metadata, older_than=NOW - days(older_than), keep_last=keep_last, now=NOW, keep=keep
    )
    return sorted(over.snapshot_ids), over.refs


def test_snapshots_before_the_moment_go() -> None:
    """One that is exactly as old as the limit stays."""
    line = history([1, 2, 3, 4], refs={"main": branch(1)})
    assert gone(line, older_than=2.5) == ([3, 4], ())
    assert gone(line, older_than=3) == ([4], ())
    assert gone(line, older_than=9) == ([], ())


def test_the_head_stays_however_old_it_is() -> None:
    line = history([5, 6], refs={"main": branch(5)})
    assert gone(line, older_than=1) == ([6], ())


def test_the_last_ones_stay_whatever_their_age() -> None:
    line = history([1, 2, 3, 4], refs={"main": branch(1)})
    assert gone(line, older_than=0.5, keep_last=3) == ([4], ())
    assert gone(line, older_than=0.5, keep_last=9) == ([], ())


def test_a_branch_says_how_many_and_how_old() -> None:
    """What a branch says comes before what the caller says, in both directions."""
    lines = [[1, 2, 3, 8, 9], [4, 5, 6, 7, 8]]
    refs = {"main": branch(1, min_snapshots_to_keep=4), "audit": branch(4)}
    # main keeps 1, 2, 3 and 8; audit keeps its head.
    assert gone(history(*lines, refs=refs), older_than=0.5) == ([5, 6, 7, 9], ())
    refs = {"main": branch(1), "audit": branch(4, max_snapshot_age_ms=int(6.5 * DAY_MS))}
    # main keeps 1; audit keeps 4, 5 and 6.
    assert gone(history(*lines, refs=refs), older_than=0.5) == ([2, 3, 7, 8, 9], ())
    # The branch wants less than the caller.
    refs = {"main": branch(1, max_snapshot_age_ms=DAY_MS // 2, min_snapshots_to_keep=2)}
    assert gone(history([1, 2, 3], refs=refs), older_than=9, keep_last=3) == ([3], ())


def test_the_snapshot_of_a_tag_stays_and_those_behind_it_need_not() -> None:
    line = history([1, 2, 3, 4], refs={"main": branch(1), "release": tag(3)})
    assert gone(line, older_than=0.5) == ([2, 4], ())


def test_a_ref_that_is_over_goes_with_what_only_it_held() -> None:
    """By its own age, or the table's; ``main`` has no age."""
    lines = [[1, 2], [6, 7]]
    refs = {
        "main": branch(1, max_ref_age_ms=1),
        "old": branch(6, max_ref_age_ms=5 * DAY_MS),
        "tag": tag(2),
    }
    assert gone(history(*lines, refs=refs), older_than=0.5) == ([6, 7], ("old",))
    refs["old"] = branch(6, max_ref_age_ms=7 * DAY_MS)
    assert gone(history(*lines, refs=refs), older_than=0.5) == ([7], ())
    refs["old"] = branch(6)
    limited = {"history.expire.max-ref-age-ms": str(DAY_MS * 3 // 2)}
    found = gone(history(*lines, refs=refs, properties=limited), older_than=0.5)
    assert found == ([2, 6, 7], ("old", "tag"))


def test_snapshots_without_a_ref_go_by_the_callers_age() -> None:
    """Such as one that was staged, or rolled back."""
    staged = history([1, 2], [3], [5], refs={"main": branch(1)})
    assert gone(staged, older_than=4) == ([5], ())
    assert gone(staged, older_than=1.5) == ([2, 3, 5], ())


def test_an_old_snapshot_in_the_history_goes_where_a_young_one_without_ref_stays() -> None:
    """Behind the first one that goes, nothing of the branch stays."""
    line = history([1, 4, 3], refs={"main": branch(1)})
    assert gone(line, older_than=3.5) == ([3, 4], ())


def test_snapshots_of_live_tasks_stay() -> None:
    line = history([1, 2, 3], refs={"main": branch(1)})
    assert gone(line, older_than=0.5, keep=[3]) == ([2], ())


def test_a_table_without_snapshots_has_nothing_to_expire() -> None:
    assert gone(history(refs={}), older_than=0) == ([], ())


@pytest.mark.parametrize(
    ("properties", "age", "count"),
    [
        ({}, days(5), 1),
        ({"history.expire.max-snapshot-age-ms": str(DAY_MS)}, days(1), 1),
        ({"history.expire.min-snapshots-to-keep": "7"}, days(5), 7),
        ({"history.expire.min-snapshots-to-keep": "0"}, days(5), 1),
    ],
)
def test_the_table_says_what_the_caller_does_not(
    properties: dict[str, str], age: timedelta, count: int
) -> None:
    metadata = history(refs={}, properties=properties)
    assert default_older_than(metadata, NOW) == NOW - age
    assert default_keep_last(metadata) == count


def test_snapshots_may_live_for_ever() -> None:
    """By Java's largest number; less than nothing is refused."""
    name = "history.expire.max-snapshot-age-ms"
    forever = history(refs={}, properties={name: str(2**63 - 1)})
    assert default_older_than(forever, NOW) == datetime.min.replace(tzinfo=UTC)
    with pytest.raises(InvalidInput, match=f"{name}: got '-1', expected a number of milli"):
        default_older_than(history(refs={}, properties={name: "-1"}), NOW)


@pytest.mark.parametrize(
    ("key", "read"),
    [
        ("history.expire.max-snapshot-age-ms", lambda table: default_older_than(table, NOW)),
        ("history.expire.min-snapshots-to-keep", default_keep_last),
        (
            "history.expire.max-ref-age-ms",
            lambda table: expiry(table, older_than=NOW, keep_last=1, now=NOW),
        ),
    ],
)
def test_what_is_no_number_is_refused(key: str, read: Callable[[TableMetadata], object]) -> None:
    """By the name of the table's property."""
    made = history([1], refs={"main": branch(1)}, properties={key: "abc"})
    with pytest.raises(InvalidInput) as refused:
        read(made)
    assert str(refused.value) == f"{key}: got 'abc', expected a whole number"
