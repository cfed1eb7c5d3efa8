"""Planner, worker and committer that are killed at steps, and started again."""

import os
import random
import signal
import threading
import time
from collections import Counter

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.lake.upkeep.maintenance import remove_orphans
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.lake.sessions import RunningJvm
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs.compaction import steps
from arctic_orchestration_tests.proofs.compaction.crew import (
    COMMITTER,
    PLANNER,
    WORKER,
    Crew,
    How,
    Member,
)
from arctic_orchestration_tests.proofs.compaction.steps import Without
from arctic_orchestration_tests.proofs.compaction.what_is_wrong import is_done, what_is_wrong
from arctic_orchestration_tests.proofs.compaction.written_tables import WrittenTable

ROLES = (PLANNER, WORKER, COMMITTER)
#: each role takes its turn, so that a worker starts while others die
STEPS = [
    (role, step)
    for _, role, step in sorted(
        (place / len(names), role, step)
        for role, names in (
            (PLANNER, steps.PLANNER),
            (WORKER, steps.WORKER),
            (COMMITTER, (*steps.COMMITTER, *steps.HOUSEKEEPING)),
        )
        for place, step in enumerate(names)
    )
]
#: how long a random moment may be waited for
_LONGEST_MOMENT = 1.5
#: so often it is asked whether a process that has to come to a step has anything to do
_LOOK_SECONDS = 1.0


class Killed:
    """Processes that are killed and started again, and the tables that they compact."""

    def __init__(
        self,
        crew: Crew,
        database: Database,
        written: list[WrittenTable],
        jvm: RunningJvm | None,
    ) -> None:
        self._crew = crew
        self.database = database
        self.written = written
        #: of the workers that come after the first one
        self.jvm = jvm
        self._how = dict.fromkeys(ROLES, How())
        self.members: dict[str, Member] = {}
        self.kills: Counter[str] = Counter()

    def start(self, role: str, how: How | None = None) -> None:
        if how is not None:
            self._how[role] = how
        self.members[role] = self._crew.start(role, self._how[role])
        if role == WORKER:
            self._how[role] = How(jvm=self.jvm)

    def kill_at(self, role: str, step: str) -> None:
        """Lets a process die at the step, and starts another one."""
        victim = self.members[role]
        self._crew.arm(step, of=victim)
        self._make_work(step)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while victim.is_alive and time.monotonic() < deadline:
            victim.process.join(_LOOK_SECONDS)
            if is_done(self.database, self.written)():
                # It was not enough to come there.
                self._make_work(step)
        assert not victim.is_alive, f"{role} did not come to {step}: {victim.log()}"
        victim.was_killed()
        assert self._crew.was_reached(step)
        self.kills[step] += 1
        self.start(role)

    def kill_sometime(self, chance: random.Random) -> None:
        """A process dies wherever it is."""
        self._write()
        role = chance.choice(ROLES)
        threading.Event().wait(chance.uniform(0, _LONGEST_MOMENT))
        os.kill(self.members[role].pid, signal.SIGKILL)
        self.members[role].was_killed()
        self.kills["at random"] += 1
        self.start(role)

    def _make_work(self, step: str) -> None:
        if step in steps.HOUSEKEEPING:
            self.kill_at(WORKER, "OUTPUTS_WRITTEN")
        else:
            self._write()

    def _write(self) -> None:
        """Lets all writers begin something, but those that have not done the last."""
        for one in self.written:
            if one.is_written():
                one.write()

    def ends(self) -> list[str]:
        """Waits until everything is written and done; then says what is wrong."""
        for one in self.written:
            one.ends()
        # A worker starts Spark, and merges what three tables have.
        until(is_done(self.database, self.written), "nothing is left to do", 3 * PATIENCE_SECONDS)
        return what_is_wrong(self.database, self.written)

    def merges_and_ends(self) -> None:
        """Lets planner and worker merge what each table begins with, and ends them.

        They might merge again what is committed, before the cleaner removes it.
        """

        def is_merged() -> bool:
            with self.database.read() as tx:
                return len(task_store.tasks(tx, states=[TaskState.MERGED])) == len(self.written)

        until(is_merged, "a task of each table is merged")
        self._end_all()

    def commits_until(self, step: str, how: How) -> None:
        """Starts a committer that dies when it comes to the step for the first time."""
        self._crew.arm(step)
        self.start(COMMITTER, how)
        self.members[COMMITTER].was_killed()
        assert self._crew.was_reached(step)

    def commits_without_history(self) -> None:
        """A committer that dies after a commit is followed by one that cannot find it again.

        Returns when :func:`what_is_wrong` has found it out.
        """
        self.start(PLANNER)
        self.start(WORKER, How(jvm=self.jvm))
        self.merges_and_ends()
        self.commits_until("SNAPSHOT_COMMITTED", How(without=Without.HISTORY))
        self.start(COMMITTER)

        def is_found_out() -> bool:
            wrong = what_is_wrong(self.database, self.written)
            return any("miss a file" in one for one in wrong)

        until(is_found_out, "the proof finds a table that misses a file")
        print(f"without the history: {what_is_wrong(self.database, self.written)}")

    def _end_all(self) -> None:
        for member in self.members.values():
            member.process.kill()
            member.was_killed()

    def remove_orphans(self) -> list[str]:
        """Ends all processes, so that nobody writes, and removes orphans; their paths."""
        self._end_all()
        removed = []
        for one in self.written:
            done = remove_orphans(one.table, older_than=utc_now(), any_age=True)
            assert (done.failed, done.young) == ((), 0)
            removed += [file.path for file in done.files]
        return removed
