"""Which files are merged, and why, computed manually."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from arctic_orchestration.compaction.planning.planner import plan, refusal_of
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.planning.table_plan import Left, PlanState, Retried, TablePlan
from arctic_orchestration.compaction.queue.task import TaskKind
from arctic_orchestration.lake.file_groups import LiveFile
from arctic_orchestration_tests.compaction.planned_files import (
    MB,
    data_file,
    data_files,
    delete_file,
    snapshot,
)

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
#: fragments below 10 MB, undersized below 75 MB, oversized above 200 MB
POLICY = Policy.of(
    {
        "arctic.compaction.target-size": "100MB",
        "arctic.compaction.fragment-size": "10MB",
        "arctic.compaction.split-size": "200MB",
        "arctic.compaction.max-task-size": "400MB",
    },
    "lake.flights",
)
#: all files were written just now: no interval has passed
FRESH = PlanState(written_at=lambda _: NOW)
FORCED = PlanState(forced=True)


def planned(
    files: list[LiveFile], state: PlanState = FRESH, policy: Policy = POLICY, now: datetime = NOW
) -> TablePlan:
    """The plan of a snapshot of these files."""
    return plan(snapshot(files), policy, state, now)


def paths(found: TablePlan) -> list[list[str]]:
    """The files of each task."""
    return [list(task.paths) for task in found.tasks]


def test_an_empty_table_has_nothing_to_merge() -> None:
    """It has no snapshot at all."""
    found = plan(snapshot([]), POLICY, FORCED, NOW)
    assert found.tasks == ()
    assert found.gain == "nothing to merge in 0 files"


def test_twelve_fragments_are_merged() -> None:
    """Into one file, with the reason and what comes of it."""
    found = planned(data_files(14, 1 * MB))
    (task,) = found.tasks
    assert task.kind is TaskKind.MINOR
    assert len(task.paths) == 14
    assert task.reason == "14 fragments; 12 suffice"
    assert task.gain == "14 files → 1, 14.0 MB"
    assert task.bytes == 14 * MB
    # 14 small ones go, and one of 14 MB comes, which is small too.
    assert task.small_files == 13
    assert task.group.snapshot_id == 109
    assert task.group.sequence_number == 9
    assert found.gain == "14 of 14 files in 1 task"


def test_eleven_fragments_wait() -> None:
    """And the reason says for how many."""
    found = planned(data_files(11, 1 * MB))
    assert found.tasks == ()
    (partition,) = found.partitions
    assert partition.left is Left.TOO_FEW
    assert partition.reason == "11 fragments of 12"
    assert found.recheck_at == NOW + HOUR


def test_fragments_that_have_waited_for_the_interval_are_merged() -> None:
    """Two are enough; the wait begins with the oldest of them."""
    files = [data_file("old", MB, sequence=1), data_file("new", MB, sequence=2)]
    moments = {1: NOW - HOUR, 2: NOW}
    found = planned(files, PlanState(written_at=moments.get))
    assert paths(found) == [["old", "new"]]
    assert found.tasks[0].reason == "2 fragments, not merged for 1h"
    moments[1] += timedelta(seconds=1)
    found = planned(files, PlanState(written_at=moments.get))
    assert found.tasks == ()
    assert found.recheck_at == NOW + timedelta(seconds=1)


def test_the_wait_begins_again_with_a_merge_of_the_partition() -> None:
    """Each partition has its own; a busy one does not keep a quiet one waiting."""
    files = [
        *data_files(2, MB, "a", partition=("a",)),
        *data_files(2, MB, "b", partition=("b",)),
    ]
    merged_at = {(TaskKind.MINOR, "a"): NOW - HOUR / 2, (TaskKind.MAJOR, "a"): NOW - HOUR}
    found = planned(files, PlanState(merged_at=merged_at))
    assert [task.partition for task in found.tasks] == ["b"]
    assert found.recheck_at == NOW + HOUR / 2
    after_a_major = {(TaskKind.MAJOR, "a"): NOW, (TaskKind.MAJOR, "b"): NOW}
    assert planned(files, PlanState(merged_at=after_a_major)).tasks == ()


def test_a_lone_fragment_is_not_merged_however_long_it_waits() -> None:
    """There is nothing to merge it with."""
    assert planned(data_files(1, MB), PlanState()).tasks == ()
    assert planned(data_files(1, MB), FORCED).partitions[0].left is Left.UNPAIRED


def test_a_minor_takes_fragments_only() -> None:
    """Undersized and done files stay where they are."""
    files = [*data_files(12, MB), data_file("half", 50 * MB), data_file("done", 90 * MB)]
    (task,) = planned(files).tasks
    assert set(task.paths) == {file.path for file in files[:12]}


def test_a_minor_leaves_out_a_file_larger_than_all_others_together() -> None:
    """9 MB would be written again for 11 kB of small files; with 8 kB more of them it is not."""
    files = [data_file("large", 9 * MB), *data_files(11, 1000)]
    (task,) = planned(files).tasks
    assert "large" not in task.paths
    assert len(task.paths) == 11
    (task,) = planned([data_file("large", 11_000), *data_files(11, 1000)]).tasks
    assert "large" in task.paths


def test_fragments_that_each_outweigh_the_smaller_ones_are_kept() -> None:
    """4, 2 and 1 MB and so on: a merge would rewrite half of it for one file."""
    files = [data_file(f"f{n}", 2**n * 1000) for n in range(12)]
    found = planned(files)
    assert found.tasks == ()
    assert found.partitions[0].left is Left.GROWING


def test_two_unequal_fragments_are_merged_once_they_have_waited() -> None:
    """Of 1, 10 and 100 kB the two smallest: what is written again is as little as it can be."""
    files = [data_file("a", 1000), data_file("b", 10_000), data_file("c", 100_000)]
    waited = PlanState(merged_at={(TaskKind.MAJOR, ""): NOW - HOUR})
    (task,) = planned(files[:2], waited).tasks
    assert (task.kind, set(task.paths)) == (TaskKind.MINOR, {"a", "b"})
    assert task.reason == "2 fragments, not merged for 1h"
    (task,) = planned(files, waited).tasks
    assert set(task.paths) == {"a", "b"}
    assert planned(files).tasks == ()


def test_eight_undersized_files_are_a_major() -> None:
    """Packed to the target with the fragments: 30 + 30 + 30 + 5, then 30 + 30 + 30, then 30 + 30"""
    files = [*data_files(8, 30 * MB), data_file("z", 5 * MB, sequence=2)]
    found = planned(files)
    assert [len(task.paths) for task in found.tasks] == [4, 3, 2]
    assert {task.kind for task in found.tasks} == {TaskKind.MAJOR}
    assert found.tasks[0].reason == "8 undersized files; 8 suffice"
    # 95 and 90 MB are done; 60 MB is not.
    assert [task.small_files for task in found.tasks] == [4, 3, 1]


def test_undersized_files_that_do_not_fit_together_are_left() -> None:
    """Of 60 MB no two fit into 100 MB: merged and cut again they would be as many."""
    found = planned(data_files(8, 60 * MB))
    assert found.tasks == ()
    (partition,) = found.partitions
    assert partition.left is Left.UNPAIRED
    # Whatever is beside them.
    (partition,) = planned([*data_files(8, 60 * MB), data_file("large", 401 * MB)]).partitions
    assert partition.left is Left.UNPAIRED
    assert partition.reason == "8 undersized files; 8 suffice"


def test_small_files_are_merged_after_the_interval_of_majors() -> None:
    """However few they are, and whatever the minors did meanwhile."""
    files = [data_file("half", 50 * MB), data_file("tiny", MB)]
    minors = {(TaskKind.MINOR, ""): NOW}
    (task,) = planned(files, PlanState(merged_at=minors)).tasks
    assert (task.kind, task.reason) == (TaskKind.MAJOR, "2 small files, not merged for 1d")
    majors = {(TaskKind.MAJOR, ""): NOW - HOUR}
    assert planned(files, PlanState(merged_at=majors)).recheck_at == NOW + 23 * HOUR


def test_an_interval_of_never_is_no_interval() -> None:
    """Then only numbers count."""
    never = {f"arctic.compaction.{kind}.interval": "never" for kind in ("minor", "major")}
    found = planned(data_files(3, MB), PlanState(), Policy.of(never, "t"))
    assert found.tasks == ()
    assert found.recheck_at is None


def test_many_deleted_rows_are_applied() -> None:
    """120 of 1000 rows in 3 of 10 files; the other seven are left alone."""
    deletes = [delete_file(f"d{n}", MB, rows=40) for n in range(3)]
    files = [
        *(data_file(f"a{n}", 80 * MB, rows=100, deletes=[deletes[n]]) for n in range(3)),
        *data_files(7, 80 * MB, "b", rows=100),
    ]
    found = planned(files)
    assert paths(found) == [["a0"], ["a1"], ["a2"]]
    assert found.tasks[0].reason == "3 of 10 files have deletes: 12 % of the rows are deleted"
    assert found.tasks[0].gain == "1 file and 1 delete file → 1, 81.0 MB"
    assert found.tasks[0].bytes == 81 * MB
    assert found.tasks[0].small_files == 1


def test_few_deleted_rows_wait() -> None:
    """99 of 1000 rows in 9 delete files."""
    deletes = [delete_file(f"d{n}", rows=11) for n in range(9)]
    files = [data_file("a", 80 * MB, rows=1000, deletes=deletes)]
    assert planned(files).partitions[0].reason == "9 delete files of 10"
    assert planned(files).tasks == ()
    assert paths(planned(files, FORCED)) == [["a"]]


def test_many_delete_files_are_applied() -> None:
    """Ten of them, though they delete next to nothing; counted once for all their files."""
    deletes = [delete_file(f"d{n}", equality=True) for n in range(10)]
    files = data_files(3, 80 * MB, rows=10**6, deletes=deletes)
    found = planned(files)
    assert len(found.tasks) == 3
    assert found.tasks[0].reason == "3 of 3 files have deletes, in 10 delete files of 10"
    assert planned(data_files(3, 80 * MB, rows=10**6, deletes=deletes[1:])).tasks == ()


def test_what_equality_deletes_delete_is_an_estimate() -> None:
    """One of them may delete several rows or none, and the reason says so."""
    files = [data_file("a", 80 * MB, rows=100, deletes=[delete_file("d", rows=50, equality=True)])]
    (task,) = planned(files).tasks
    assert task.reason == "1 of 1 file have deletes: about 50 % of the rows are deleted"


def test_small_files_come_along_when_deletes_are_applied() -> None:
    """The partition is worked on anyway."""
    files = [
        data_file("a", 40 * MB, deletes=[delete_file("d", MB, rows=999)]),
        data_file("b", 40 * MB),
        data_file("c", 90 * MB),
    ]
    assert paths(planned(files)) == [["a", "b"]]


def test_an_oversized_file_is_split() -> None:
    """290 MB become three files; one of 200 MB is let be."""
    found = planned([data_file("a", 290 * MB), data_file("b", 200 * MB)])
    assert paths(found) == [["a"]]
    assert found.tasks[0].reason == "1 file above 200.0 MB"
    assert found.tasks[0].gain == "1 file → 3, 290.0 MB"
    assert found.tasks[0].small_files == 0


def test_a_file_above_what_a_task_may_read_is_left_and_reported() -> None:
    """401 MB of 400."""
    found = planned([data_file("a", 401 * MB)])
    assert found.tasks == ()
    (partition,) = found.partitions
    assert partition.left is Left.TOO_LARGE
    assert partition.notes == ("1 file too large for a task of 400.0 MB",)
    assert planned([data_file("a", 401 * MB)], FORCED).partitions[0].left is Left.TOO_LARGE


def test_a_file_that_no_task_may_read_is_no_reason_to_rewrite_small_ones() -> None:
    """The two small files wait, as they would without it; so with deletes that are too large."""
    small = [data_file("u", 50 * MB), data_file("n", 1 * MB)]
    large = data_file("large", 401 * MB)
    deleted = data_file("deleted", 80 * MB, deletes=[delete_file("d", 330 * MB, rows=900)])
    for files in (small, [*small, large], [*small, deleted]):
        found = planned(files)
        assert found.tasks == ()
        assert found.partitions[0].left is Left.TOO_FEW
    assert found.partitions[0].notes == ("1 file too large for a task of 400.0 MB",)
    assert (found.partitions[0].with_deletes, found.partitions[0].delete_files) == (1, 1)


def test_an_oversized_file_of_one_row_is_let_be() -> None:
    """A row of 290 MB, which is one file whatever is done with it; two such rows are two."""
    found = planned([data_file("a", 290 * MB, rows=1)])
    assert found.tasks == ()
    assert found.partitions[0].left is Left.FINE
    assert paths(planned([data_file("a", 290 * MB, rows=2)])) == [["a"]]


def test_partitions_and_specs_are_never_mixed() -> None:
    """Each of them is decided for itself."""
    files = [
        *data_files(12, MB, "a", partition=(1,)),
        *data_files(12, MB, "b", partition=(2,)),
        *data_files(12, MB, "c", partition=(2,), spec=1),
        *data_files(2, MB, "d", partition=(3,)),
    ]
    found = planned(files)
    assert [(task.group.spec_id, task.partition) for task in found.tasks] == [
        (0, "1"),
        (0, "2"),
        (1, "2"),
    ]
    assert [partition.left for partition in found.partitions] == [None, None, Left.TOO_FEW, None]


def test_files_in_tasks_under_way_are_left_out() -> None:
    """14 fragments of which 3 are held are 11."""
    files = data_files(14, MB)
    held = frozenset({"f0000", "f0001", "f0002"})
    found = planned(files, PlanState(written_at=FRESH.written_at, held_files=held))
    assert found.tasks == ()
    assert found.partitions[0].reason == "11 fragments of 12"
    assert found.partitions[0].notes == ("3 files in tasks under way",)


def test_a_partition_under_a_major_is_left_out_whole() -> None:
    """Even what the major did not take."""
    files = [*data_files(20, MB, "a", partition=("a",)), *data_files(20, MB, "b", partition=("b",))]
    found = planned(files, PlanState(held_partitions=frozenset({"a"})))
    assert [task.partition for task in found.tasks] == ["b"]
    assert found.partitions[0].left is Left.HELD


def test_a_task_that_is_attempted_again_stays_as_it_is() -> None:
    """Its failures count on; files that came since are planned without it."""
    files = data_files(40, MB)
    first = frozenset(file.path for file in files[:12])
    retried = Retried(kind=TaskKind.MINOR, reason="12 fragments of 12", paths=first)
    found = planned(files, PlanState(retried=(retried,)))
    assert sorted(len(task.paths) for task in found.tasks) == [12, 28]
    assert first in {frozenset(task.paths) for task in found.tasks}


def test_a_task_whose_files_are_gone_is_not_attempted_again() -> None:
    """What is left of them is planned again."""
    retried = Retried(kind=TaskKind.MINOR, reason="", paths=frozenset({"f0000", "gone"}))
    found = planned(data_files(12, MB), PlanState(retried=(retried,)))
    assert [len(task.paths) for task in found.tasks] == [12]


def test_the_most_wanted_task_comes_first() -> None:
    """What a queue has no room for is cut off at the end: few bytes for many files go first."""
    files = [
        *data_files(12, 8 * MB, "a", partition=("a",)),
        *data_files(12, 1000, "b", partition=("b",)),
    ]
    assert [task.partition for task in planned(files).tasks] == ["b", "a"]


def test_what_is_left_alone_is_summed_up_by_cause() -> None:
    """With the number of partitions and files, and examples."""
    files = [file for n in range(5) for file in data_files(2, 90 * MB, f"f{n}-", partition=(n,))]
    files += data_files(3, MB, "few", partition=(9,))
    few, fine = sorted(planned(files).left_alone(), key=lambda one: one.partitions)
    assert (fine.left, fine.partitions, fine.files) == (Left.FINE, 5, 10)
    assert fine.examples[0] == "0: 2 files, all of them done"
    assert len(fine.examples) == 3
    assert (few.left, few.examples) == (Left.TOO_FEW, ("9: 3 fragments of 12",))


def test_files_that_are_not_parquet_refuse_the_table() -> None:
    """The reason names how many, and the first."""
    files = [
        data_file("a", MB),
        data_file("c.orc", MB, file_format="ORC"),
        data_file("b.avro", MB, file_format="avro"),
    ]
    assert refusal_of(snapshot(files)) == (
        "got 2 files that are not Parquet, expected Parquet files only; the first is b.avro (avro)"
    )
    assert refusal_of(snapshot(files[:1])) is None


def test_files_that_rest_are_left_out_and_the_others_planned() -> None:
    """A person who requests everything gets them too."""
    files = data_files(30, 1 * MB)
    resting = {f"f{number:04}": NOW + HOUR * (1 + number % 2) for number in range(14)}
    found = planned(files, replace(FRESH, resting=resting))
    (task,) = found.tasks
    assert set(task.paths) == {f"f{number:04}" for number in range(14, 30)}
    assert found.partitions[0].notes == ("14 files at rest, until 2026-01-02 13:00:00Z",)
    assert found.recheck_at == NOW + HOUR
    found = planned(files[:14], replace(FRESH, resting=resting))
    assert found.tasks == ()
    (left,) = found.left_alone()
    assert left.left is Left.RESTING
    assert left.examples == ("14 files at rest, until 2026-01-02 13:00:00Z",)
    forced = planned(files, replace(FORCED, resting=resting))
    assert sum(len(task.paths) for task in forced.tasks) == 30


def test_zero_and_minus_zero_are_two_partitions_and_nan_is_one() -> None:
    """As in Iceberg, where values are distinguished by their bits."""
    files = [
        file
        for number, value in enumerate([0.0, -0.0, float("nan")])
        for file in data_files(12, 1 * MB, name=f"p{number}-", partition=(value,))
    ]
    # Each file of NaN has one of its own, as manifests are read.
    files = [
        replace(file, partition=(float("nan"),)) if file.path.startswith("p2") else file
        for file in files
    ]
    found = paths(planned(files))
    assert sorted(sorted({path[:2] for path in task}) for task in found) == [["p0"], ["p1"], ["p2"]]
    assert [len(task) for task in found] == [12, 12, 12]
