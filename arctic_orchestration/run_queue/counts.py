"""Counts of active runs for gates and limits."""

from collections import Counter

from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.census import Census


class Counts:
    """The active runs of one census, counted.

    Attributes:
        in_group: by group.
        in_program: by group and program.
        in_interval: by interval and program.
        in_key: by key of a tag.
        in_tag: by key and value.
        strays: by group, the runs without its tag: they were never queued under it, and Dagster
            counts them nowhere.
        program_strays: by group and program, the runs without the tag of their program.
    """

    def __init__(self, census: Census) -> None:
        self.in_group: Counter[str] = Counter()
        self.in_program: Counter[tuple[str, str]] = Counter()
        self.in_interval: Counter[tuple[str, str]] = Counter()
        self.in_key: Counter[str] = Counter()
        self.in_tag: Counter[tuple[str, str]] = Counter()
        self.strays: Counter[str] = Counter()
        self.program_strays: Counter[tuple[str, str]] = Counter()
        for run in census.active:
            self.in_key.update(run.tags.keys())
            self.in_tag.update(run.tags.items())
            for name in run.standing.groups:
                self.in_group[name] += 1
                self.strays[name] += tagging.Kind.GROUP.key(name) not in run.tags
                key = tagging.program_key(name)
                self.in_program[name, run.program_under(key)] += 1
                self.program_strays[name, run.program] += key not in run.tags
            for name in run.standing.intervals:
                self.in_interval[name, run.program_under(tagging.Kind.INTERVAL.key(name))] += 1
