"""Decides which files of a table are merged: from facts and ``now`` alone, with its reasons.

Each partition (of each partition spec) is decided separately:

- files that exceed a task, with their deletes, are left alone, and cause nothing;
- *full*, if it has changed and the interval of full rewrites has passed: all of its files are
  packed and written again;
- else *major*, if it has enough undersized files, enough deletes, or an oversized file, or if its
  small files have waited for the interval of majors: all files that are not done are repacked;
  files with deletes, if the partition has enough of them; an oversized file is split;
- else *minor*, if it has enough fragments, or if these have waited for the interval of minors: only
  its fragments are packed. A file larger than all others of its bin together is excluded, so each
  time that a byte is rewritten its file is at least twice as large as before: from fragments of 1
  KiB to files of 16 MiB it is written 14 times, however often small files come. When the interval
  has passed, the two smallest are merged in any case: once an interval;
- else nothing, with the reason.

A merge leaves no files that the same rules would merge again; so planning ends.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from arctic_orchestration.compaction.planning.due_moments import due_moments
from arctic_orchestration.compaction.planning.packing import Limits, in_order, pack
from arctic_orchestration.compaction.planning.partition_files import (
    PartitionFiles,
    distinct_deletes,
)
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.planning.table_plan import (
    Left,
    PartitionPlan,
    PlanState,
    TablePlan,
)
from arctic_orchestration.compaction.queue.ranking import benefit_of
from arctic_orchestration.compaction.queue.task import PlannedTask, TaskKind
from arctic_orchestration.lake.delete_index import partition_key
from arctic_orchestration.lake.file_groups import FileGroup, LiveFile
from arctic_orchestration.lake.file_sizes import outputs_wanted
from arctic_orchestration.quantities import counted, format_bytes, format_duration, format_moment

if TYPE_CHECKING:
    from arctic_orchestration.lake.manifests import LiveFiles

#: Returns the name of a partition of a spec, for people.
NameOf = Callable[[int, tuple[Any, ...]], str]

_PARQUET = "parquet"
_NEVER = datetime.max.replace(tzinfo=UTC)


def name_of_values(_spec_id: int, values: tuple[Any, ...]) -> str:
    """Returns the name of a partition of which only the values are known."""
    return ", ".join(str(value) for value in values)


def plan(
    files: "LiveFiles",
    policy: Policy,
    state: PlanState,
    now: datetime,
    *,
    name_of: NameOf = name_of_values,
) -> TablePlan:
    """Returns what is merged, and why; the same for the same files in any order.

    Every task has at least two data files, or another reason: deletes that are applied, or a file
    that is split. No file is in two tasks, and none is held by ``state``.

    Cost: about 10 µs a file.
    """
    if files.snapshot_id is None:
        return TablePlan(snapshot_id=None, sequence_number=files.sequence_number)
    planner = _Planner(files.snapshot_id, files.sequence_number, policy, state, now)
    tasks, held = planner.retried(files.files, name_of)
    planned = [
        planner.partition(spec_id, name, members, held)
        for spec_id, name, members in _partitions(files.files, name_of)
    ]
    tasks += [task for made in planned for task in made.tasks]
    again = [made.recheck_at for made in planned if made.recheck_at is not None]
    return TablePlan(
        snapshot_id=files.snapshot_id,
        sequence_number=files.sequence_number,
        files=len(files.files),
        bytes=sum(file.size for file in files.files),
        # What exceeds the room of a queue is cut off at the end.
        tasks=tuple(sorted(tasks, key=_wanted)),
        partitions=tuple(made.plan for made in planned),
        recheck_at=min(again, default=None),
    )


def refusal_of(files: "LiveFiles") -> str | None:
    """Returns why the table's files cannot be merged; none: they can."""
    others = sorted(
        (file.path, file.file_format.lower())
        for file in files.files
        if file.file_format.lower() != _PARQUET
    )
    if not others:
        return None
    path, file_format = others[0]
    return (
        f"got {counted(len(others), 'file')} that are not Parquet, expected Parquet files only; "
        f"the first is {path} ({file_format})"
    )


def _partitions(
    files: Sequence[LiveFile], name_of: NameOf
) -> list[tuple[int, str, list[LiveFile]]]:
    # Not by equality alone: a NaN is not equal to itself, and 0.0 is to -0.0.
    found: dict[Hashable, list[LiveFile]] = defaultdict(list)
    for file in files:
        found[partition_key(file.spec_id, file.partition)].append(file)
    named = [
        (members[0].spec_id, name_of(members[0].spec_id, members[0].partition), members)
        for members in found.values()
    ]
    # Of two partitions with the same name, the one with the first path is first.
    return sorted(named, key=lambda one: (one[0], one[1], min(file.path for file in one[2])))


def _wanted(task: PlannedTask) -> tuple[float, str, str]:
    return (
        -benefit_of(task.small_files, task.decoded_bytes),
        task.partition,
        task.group.files[0].path,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Choice:
    """The decision about a partition, before its files are packed."""

    kind: TaskKind
    reason: str
    applies_deletes: bool = False
    #: the interval has elapsed: two files are merged, however unequal they are
    waited: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Made:
    """The result for one partition."""

    tasks: list[PlannedTask]
    plan: PartitionPlan
    recheck_at: datetime | None


@dataclass(frozen=True, slots=True)
class _Planner:
    snapshot_id: int
    sequence_number: int
    policy: Policy
    state: PlanState
    now: datetime

    def retried(
        self, files: Sequence[LiveFile], name_of: NameOf
    ) -> tuple[list[PlannedTask], frozenset[str]]:
        """Returns retried tasks, and all files that must not be planned again."""
        held = set(self.state.held_files)
        tasks: list[PlannedTask] = []
        if not self.state.retried:
            return tasks, self.state.held_files
        live = {file.path: file for file in files}
        for one in self.state.retried:
            if not (one.paths and one.paths <= live.keys() and held.isdisjoint(one.paths)):
                continue
            if one.is_rest and self.policy.full_interval is None:
                continue
            group = tuple(in_order([live[path] for path in one.paths]))
            name = name_of(group[0].spec_id, group[0].partition)
            choice = _Choice(kind=one.kind, reason=one.reason)
            tasks.append(self._task(choice, group[0].spec_id, name, group))
            held |= one.paths
        return tasks, frozenset(held)

    def partition(
        self, spec_id: int, name: str, members: Sequence[LiveFile], held: frozenset[str]
    ) -> _Made:
        """Returns its tasks, and the plan of the partition."""
        others = [file for file in members if file.path not in held]
        if name in self.state.held_partitions:
            others = []
        free, awake_at = self._awake(others)
        found = PartitionFiles.of(free, self.policy)
        here = found.for_tasks(self.policy)
        notes = []
        if len(others) < len(members):
            notes.append(f"{counted(len(members) - len(others), 'file')} in tasks under way")
        if awake_at is not None:
            files = counted(len(others) - len(free), "file")
            notes.append(f"{files} at rest, until {format_moment(awake_at)}")
        if here.too_large:
            most = format_bytes(self.policy.max_task_size)
            notes.append(f"{counted(len(here.too_large), 'file')} too large for a task of {most}")
        due = due_moments(here, name, self.policy, self.state)
        choice = self._choice(here, due) if free else None
        tasks: list[PlannedTask] = []
        left: Left | None = None
        if choice is None and free:
            reason, left = self._why_not(here)
        elif choice is None and others:
            reason, left = "; ".join(notes), Left.RESTING
        elif choice is None:
            reason, left = "a merge is under way", Left.HELD
        else:
            reason = choice.reason
            groups, cause = self._groups(choice, here)
            tasks = [self._task(choice, spec_id, name, group) for group in groups]
            if not tasks:
                left = cause
        plan = PartitionPlan(
            spec_id=spec_id,
            name=name,
            files=len(members),
            bytes=sum(file.size for file in members),
            fragments=len(found.fragments),
            undersized=len(found.undersized),
            oversized=len(found.oversized),
            with_deletes=len(found.with_deletes),
            delete_files=len(found.deletes),
            kind=choice.kind if choice is not None and tasks else None,
            tasks=len(tasks),
            merged_files=sum(len(task.group.files) for task in tasks),
            left=left,
            reason=reason,
            notes=tuple(notes),
        )
        moments = [*due.values(), *([] if awake_at is None else [awake_at])]
        later = min((at for at in moments if at > self.now), default=None)
        return _Made(tasks=tasks, plan=plan, recheck_at=later)

    def _awake(self, files: Sequence[LiveFile]) -> tuple[list[LiveFile], datetime | None]:
        """Returns the files that do not rest, and the first end of a rest."""
        resting = self.state.resting
        if not resting or self.state.forced:
            return list(files), None
        moments = [resting[file.path] for file in files if file.path in resting]
        return [file for file in files if file.path not in resting], min(moments, default=None)

    def _choice(self, here: PartitionFiles, due: Mapping[TaskKind, datetime]) -> _Choice | None:
        if self.state.forced:
            kind = TaskKind.FULL if self.state.full else TaskKind.MAJOR
            return _Choice(kind=kind, reason="it was requested", applies_deletes=True)
        if due.get(TaskKind.FULL, _NEVER) <= self.now:
            often = format_duration(self.policy.full_interval or timedelta(0))
            files = counted(len(here.files), "file")
            reason = f"{files}, changed and not rewritten as a whole for {often}"
            return _Choice(kind=TaskKind.FULL, reason=reason, applies_deletes=True)
        deletes = self._deletes(here)
        reasons = [deletes] if deletes is not None else []
        if here.oversized:
            above = format_bytes(self.policy.split_size)
            reasons.append(f"{counted(len(here.oversized), 'file')} above {above}")
        if len(here.undersized) >= self.policy.major_min_files:
            files = counted(len(here.undersized), "undersized file")
            reasons.append(f"{files}; {self.policy.major_min_files} suffice")
        elif due.get(TaskKind.MAJOR, _NEVER) <= self.now:
            small = len(here.fragments) + len(here.undersized)
            reasons.append(f"{small} small files, {_unmerged(self.policy.major_interval)}")
        if reasons:
            return _Choice(
                kind=TaskKind.MAJOR,
                reason="; ".join(reasons),
                applies_deletes=deletes is not None,
            )
        fragments = len(here.fragments)
        waited = due.get(TaskKind.MINOR, _NEVER) <= self.now
        if fragments >= self.policy.minor_min_files:
            reason = f"{fragments} fragments; {self.policy.minor_min_files} suffice"
        elif waited:
            reason = f"{fragments} fragments, {_unmerged(self.policy.minor_interval)}"
        else:
            return None
        return _Choice(kind=TaskKind.MINOR, reason=reason, waited=waited)

    def _deletes(self, here: PartitionFiles) -> str | None:
        """Returns why deletes are applied; none: there are too few."""
        share = here.deleted_share
        many = len(here.deletes) >= self.policy.major_delete_files
        if not here.deletes or not (many or share >= self.policy.major_deleted_rows):
            return None
        have = f"{len(here.with_deletes)} of {counted(len(here.files), 'file')} have deletes"
        if share >= self.policy.major_deleted_rows:
            about = "about " if here.is_estimate else ""
            return f"{have}: {about}{100 * share:.0f} % of the rows are deleted"
        return f"{have}, in {len(here.deletes)} delete files of {self.policy.major_delete_files}"

    def _why_not(self, here: PartitionFiles) -> tuple[str, Left]:
        policy = self.policy
        counts = []
        if here.fragments:
            counts.append(f"{counted(len(here.fragments), 'fragment')} of {policy.minor_min_files}")
        if here.undersized:
            counts.append(
                f"{counted(len(here.undersized), 'undersized file')} of {policy.major_min_files}"
            )
        if here.deletes:
            counts.append(
                f"{counted(len(here.deletes), 'delete file')} of {policy.major_delete_files}"
            )
        if counts:
            return ", ".join(counts), Left.TOO_FEW
        if here.too_large:
            return "no other file can be better", Left.TOO_LARGE
        return f"{counted(len(here.files), 'file')}, all of them done", Left.FINE

    def _groups(
        self, choice: _Choice, here: PartitionFiles
    ) -> tuple[list[tuple[LiveFile, ...]], Left]:
        """Returns the files of each task, and, if there are none, the reason."""
        split = here.oversized if choice.kind is not TaskKind.MINOR else ()
        chosen = list(here.fragments)
        if choice.kind is TaskKind.FULL:
            others = {file.path for file in (*here.too_large, *split)}
            chosen = [file for file in here.files if file.path not in others]
        if choice.kind is TaskKind.MAJOR:
            chosen += here.undersized
            if choice.applies_deletes:
                small = {file.path for file in (*chosen, *split)}
                chosen += [file for file in here.with_deletes if file.path not in small]
        target = self.policy.target_size
        if choice.kind is TaskKind.FULL and self.policy.sort is not None:
            # The outputs of one task have disjoint ranges, so it has as many as it may.
            target = self.policy.max_task_size
        bins = pack(
            chosen,
            Limits(
                target=target,
                most_bytes=self.policy.max_task_size,
                most_files=self.policy.max_files,
            ),
        )
        cause = Left.UNPAIRED if chosen or not here.too_large else Left.TOO_LARGE
        groups = []
        for files in bins:
            kept = files
            if choice.kind is TaskKind.MINOR:
                kept = _without_larger(files, least=2 if choice.waited else 1)
                if len(kept) < 2 <= len(files):
                    cause = Left.GROWING
            alone = choice.kind is TaskKind.FULL or (choice.applies_deletes and kept[0].deletes)
            if len(kept) > 1 or alone:
                groups.append(kept)
        groups += [(file,) for file in split]
        return groups, cause

    def _task(
        self, choice: _Choice, spec_id: int, name: str, files: tuple[LiveFile, ...]
    ) -> PlannedTask:
        group = FileGroup(
            snapshot_id=self.snapshot_id,
            sequence_number=self.sequence_number,
            spec_id=spec_id,
            files=files,
        )
        data = sum(file.size for file in files)
        deletes = distinct_deletes(files)
        outputs = outputs_wanted(data, self.policy.target_size, files=len(files))
        small = sum(file.size < self.policy.done_size for file in files)
        small_outputs = outputs if data < self.policy.done_size * outputs else 0
        before = counted(len(files), "file")
        if deletes:
            before += f" and {counted(len(deletes), 'delete file')}"
        size = data + sum(delete.size for delete in deletes)
        return PlannedTask(
            kind=choice.kind,
            partition=name,
            group=group,
            small_files=max(0, small - small_outputs) + len(deletes),
            bytes=size,
            reason=choice.reason,
            gain=f"{before} → {outputs}, {format_bytes(size)}",
        )


def _without_larger(files: tuple[LiveFile, ...], *, least: int) -> tuple[LiveFile, ...]:
    """Drops files larger than all smaller ones together; the ``least`` smallest stay."""
    by_size = sorted(files, key=lambda file: (file.size, file.path))
    rest = sum(file.size for file in by_size)
    while len(by_size) > least and 2 * by_size[-1].size > rest:
        rest -= by_size.pop().size
    kept = {file.path for file in by_size}
    return tuple(file for file in files if file.path in kept)


def _unmerged(interval: timedelta | None) -> str:
    return f"not merged for {format_duration(interval or timedelta(0))}"
