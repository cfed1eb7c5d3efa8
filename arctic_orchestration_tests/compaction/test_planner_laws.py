"""What holds for every plan, whatever the table looks like."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.compaction.planning.planner import plan
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.planning.table_plan import PlanState, TablePlan
from arctic_orchestration.compaction.queue.task import TaskKind
from arctic_orchestration.lake.file_groups import LiveFile
from arctic_orchestration.lake.manifests import LiveFiles
from arctic_orchestration_tests.compaction.planned_files import (
    MIB,
    data_file,
    delete_file,
    merged,
    snapshot,
)
from arctic_orchestration_tests.executed_lines import executed_lines

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
DELETES = [
    delete_file(f"d{n}", size, rows=rows, sequence=9, equality=bool(n % 2))
    for n, (size, rows) in enumerate([(10, 1), (100, 50), (900, 300), (5000, 2), (9000, 100)])
]
FILES = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 1024), st.integers(0, 20_000)),
        st.integers(1, 1000),
        st.integers(0, 8),
        st.sampled_from([(0, ()), (1, ("a",)), (1, ("b",)), (1, (None,))]),
        st.lists(st.sampled_from(DELETES), max_size=2, unique=True),
    ),
    max_size=60,
).map(
    lambda found: [
        data_file(
            f"f{n:03}",
            size,
            rows=rows,
            sequence=sequence,
            spec=spec,
            partition=partition,
            deletes=deletes,
        )
        for n, (size, rows, sequence, (spec, partition), deletes) in enumerate(found)
    ]
)
POLICIES = st.builds(
    lambda **fields: Policy(target_size=8192, split_size=8192 * 9 // 5, **fields),
    fragment_size=st.sampled_from([512, 1024]),
    done_size=st.sampled_from([4096, 6144]),
    minor_min_files=st.integers(2, 12),
    minor_interval=st.sampled_from([None, timedelta(hours=1)]),
    major_min_files=st.integers(2, 8),
    major_interval=st.sampled_from([None, timedelta(days=1)]),
    major_delete_files=st.integers(1, 4),
    major_deleted_rows=st.sampled_from([0.01, 0.1, 0.5]),
    max_task_size=st.sampled_from([8192, 16_384, 40_000]),
    max_files=st.integers(2, 40),
)
STATES = st.builds(
    PlanState,
    merged_at=st.dictionaries(
        st.tuples(st.sampled_from(TaskKind), st.sampled_from(["", "a", "b"])),
        st.datetimes(datetime(2026, 1, 1), datetime(2026, 1, 2), timezones=st.just(UTC)),
    ),
    held_files=st.frozensets(st.integers(0, 60).map(lambda n: f"f{n:03}")),
    held_partitions=st.frozensets(st.sampled_from(["", "a", "b", "None"]), max_size=2),
    forced=st.booleans(),
)


@given(FILES, POLICIES, STATES)
def test_tasks_keep_to_their_partition_and_bounds(
    files: list[LiveFile], policy: Policy, state: PlanState
) -> None:
    """No file is in two tasks, or in one under way; none is alone without a reason."""
    found = plan(snapshot(files), policy, state, NOW)
    planned = [path for task in found.tasks for path in task.paths]
    assert len(planned) == len(set(planned))
    assert state.held_files.isdisjoint(planned)
    for task in found.tasks:
        assert task.reason
        assert task.partition not in state.held_partitions
        assert len({(file.spec_id, file.partition) for file in task.group.files}) == 1
        assert task.bytes == task.group.bytes <= policy.max_task_size
        assert len(task.paths) <= policy.max_files
        data = sum(file.size for file in task.group.files)
        if len(task.paths) > 1:
            deletes = task.bytes - data
            assert data <= policy.target_size
            assert task.bytes <= policy.target_size or data <= deletes
        else:
            assert task.kind is TaskKind.MAJOR
            assert task.group.delete_files or data > policy.split_size
    for partition in found.partitions:
        assert partition.reason
        assert (partition.left is None) == bool(partition.tasks)


@given(FILES, POLICIES, STATES, st.randoms())
def test_the_order_of_the_files_changes_nothing(
    files: list[LiveFile], policy: Policy, state: PlanState, shuffled: random.Random
) -> None:
    """Manifests have them in any order, and two planners make the same plan."""
    expected = plan(snapshot(files), policy, state, NOW)
    again = list(files)
    shuffled.shuffle(again)
    assert plan(snapshot(again), policy, state, NOW) == expected


def rounds_until_nothing(
    live: LiveFiles, policy: Policy, state: PlanState, sizes: Callable[[], float]
) -> list[int]:
    """How many tasks each round had: planned, merged, and planned again."""
    rounds = []
    while tasks := plan(live, policy, state, NOW).tasks:
        rounds.append(len(tasks))
        assert len(rounds) <= 12, rounds
        live = merged(live, tasks, policy.target_size, sizes)
    return rounds


@given(FILES, POLICIES, st.booleans())
def test_planning_ends(files: list[LiveFile], policy: Policy, forced: bool) -> None:
    """With outputs as large as their inputs, though the intervals have always passed."""
    rounds_until_nothing(snapshot(files), policy, PlanState(forced=forced), lambda: 1.0)


@given(FILES, POLICIES, st.booleans(), st.randoms(use_true_random=False))
def test_planning_ends_though_sizes_are_not_as_expected(
    files: list[LiveFile], policy: Policy, forced: bool, sizes: random.Random
) -> None:
    """Rows compress better together, or worse, or are deleted."""
    rounds_until_nothing(
        snapshot(files), policy, PlanState(forced=forced), lambda: sizes.uniform(0.2, 1.5)
    )


TOO_LARGE = [
    data_file("large", 100_000),
    data_file("half-deleted", 5000, deletes=[delete_file("large-deletes", 90_000, rows=500)]),
    *(
        data_file(f"undersized{n}", 3000, deletes=[delete_file(f"large{n}", 50_000)])
        for n in range(8)
    ),
]


@given(FILES, POLICIES, STATES, st.sets(st.sampled_from(range(len(TOO_LARGE))), min_size=1))
def test_files_too_large_for_any_task_change_nothing_for_the_others(
    files: list[LiveFile], policy: Policy, state: PlanState, chosen: set[int]
) -> None:
    """They are left, and the others are planned as if they were not there."""
    # The share of deleted rows is of all files: here it is never reached.
    policy = replace(policy, major_deleted_rows=2.0)
    large = [TOO_LARGE[number] for number in sorted(chosen)]
    alone = plan(snapshot(files), policy, state, NOW)
    beside = plan(snapshot([*files, *large]), policy, state, NOW)
    assert [(task.kind, task.paths) for task in beside.tasks] == [
        (task.kind, task.paths) for task in alone.tasks
    ]


@given(
    st.lists(st.integers(1, 20_000), max_size=60),
    st.integers(2, 12),
    st.integers(2, 8),
    st.booleans(),
)
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(
    sizes: list[int], minor: int, major: int, forced: bool
) -> None:
    """Without deletes, whose weight goes, the first plan is a major of everything or the last."""
    policy = Policy(
        target_size=8192,
        fragment_size=1024,
        done_size=6144,
        split_size=8192 * 9 // 5,
        minor_min_files=minor,
        major_min_files=major,
    )
    live = snapshot([data_file(f"f{n:03}", size) for n, size in enumerate(sizes)])
    rounds = rounds_until_nothing(live, policy, PlanState(forced=forced), lambda: 1.0)
    assert len(rounds) <= (1 if forced else 3)


@pytest.mark.parametrize(
    "beside",
    [
        [],
        [data_file("large", 1024 * MIB)],
        [data_file("f", 120 * MIB, rows=10**8, deletes=[delete_file("d", 600 * MIB, rows=10**8)])],
        [data_file("one row", 300 * MIB, rows=1)],
    ],
    ids=["alone", "a large file", "large deletes", "a large row"],
)
def test_small_appends_for_a_day_are_not_written_over_and_over(beside: list[LiveFile]) -> None:
    """A file of 4 KiB each 10 s: planned each minute, a byte is written a few times, not 700."""
    policy = Policy()
    size, live, written = 4096, snapshot(beside), 0
    for minute in range(24 * 60):
        moment = NOW + timedelta(minutes=minute)
        new = [data_file(f"{minute}-{n}", size, sequence=minute + 1) for n in range(6)]
        live = snapshot([*live.files, *new], minute + 1)
        state = PlanState(written_at=_written_at(moment))
        tasks = plan(live, policy, state, moment).tasks
        written += sum(task.bytes for task in tasks)
        live = merged(live, tasks, policy.target_size, lambda: 1.0)
    appended = 24 * 60 * 6 * size
    # From 4 KiB to the fragments' end at 16 MiB is a factor of 2^12; a file doubles each time.
    assert written <= 12 * appended
    assert len(live.files) < 12 + 14 + len(beside)


@pytest.mark.parametrize("sizes", [(1, 200_000), (2 * MIB, 140 * MIB)])
def test_twice_the_files_cost_twice_the_work(sizes: tuple[int, int]) -> None:
    """In one partition; a search of all files for each file would cost four times as much."""

    def work(count: int) -> int:
        dice = random.Random(7)
        deletes = (delete_file("d", rows=10**6),)
        files = [
            data_file(
                f"s3://lake/flights/data/{n:08}.parquet",
                dice.randint(*sizes),
                sequence=n // 10,
                deletes=deletes if n % 3 == 0 else (),
            )
            for n in range(count)
        ]
        live = snapshot(files, 6000)
        return executed_lines(lambda: plan(live, Policy(), PlanState(forced=True), NOW))

    assert work(50_000) < 2.5 * work(25_000)


def test_a_stream_of_upserts_is_planned_in_large_tasks_with_linear_work() -> None:
    """50,000 files of 1 MB and 500 equality deletes: some 130 files a task, not one."""

    def upserts(count: int, among: int) -> LiveFiles:
        dice = random.Random(7)
        deletes = [
            delete_file(f"d{n:03}", 2000, sequence=n * count // among // 10 + 5, equality=True)
            for n in range(among)
        ]
        # As manifests are read: files of one commit have the very same tuple.
        since = [tuple(deletes[first:]) for first in range(among + 1)]
        files = [
            data_file(f"{n:08}", dice.randint(1, 2_000_000), sequence=n // 10) for n in range(count)
        ]
        return snapshot(
            [
                replace(
                    file,
                    deletes=since[min(among, (file.sequence_number + 5) * 10 * among // count)],
                )
                for file in files
            ],
            6000,
        )

    def planned(live: LiveFiles) -> TablePlan:
        return plan(live, Policy(), PlanState(forced=True), NOW)

    few, many = upserts(5_000, 100), upserts(10_000, 100)
    assert executed_lines(lambda: planned(many)) < 2.5 * executed_lines(lambda: planned(few))
    # 50 GB in tasks of 134 MB.
    assert 373 <= len(planned(upserts(50_000, 500)).tasks) <= 400


def _written_at(moment: datetime) -> Callable[[int], datetime]:
    """For any file, this moment."""
    return lambda _: moment
