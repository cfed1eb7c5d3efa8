"""Attempts against a small model of them, in every order that Hypothesis thinks of.

``ARCTIC_PROOF=full`` tries 300 orders on each database, by default 25.
"""

import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from arctic_orchestration.compaction.commit import commits
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.task import LIVE, TaskState
from arctic_orchestration.compaction.work import attempt_lookup, attempts
from arctic_orchestration.compaction.work.attempt import Claim
from arctic_orchestration.errors import Refused
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.stored import MERGE, NOON, cleared, planned, seen
from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.standing_clock import Clock

ORDERS = 300 if os.environ.get("ARCTIC_PROOF") == "full" else 25

LIFE = timedelta(seconds=60)
RETRY = timedelta(seconds=20)


@dataclass
class ModelTask:
    """What the model knows of a task."""

    id: str
    rank: int
    most: int
    state: str = "planned"
    attempts: int = 0
    token: int = 0
    not_before: datetime | None = None
    #: of the attempt that holds it
    holder: str | None = None
    expires: datetime = NOON
    #: every attempt that was ever taken a merge from
    merges: list[str] = field(default_factory=list)


#: which claim, counted from the newest, and how far off its token a report is
_BACK = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 5])
_OFF = st.sampled_from([0, 0, 0, 0, 0, 1, -1])


class Attempts(RuleBasedStateMachine):
    """Each rule does one thing in the database and in the model, and compares the answers."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.clock = Clock()
        self.model: dict[str, ModelTask] = {}
        self.number = 0
        #: all there ever were, the newest last
        self.claims: list[Claim] = []
        with database.begin() as tx:
            cleared(tx)
            seen(tx, "lake.a")

    def _holds(self, claim: Claim, token: int) -> ModelTask | None:
        """The task of an attempt, if a report of it should be taken."""
        task = self.model[claim.task.id]
        held = task.state == "claimed" and task.holder == claim.attempt_id
        return task if held and token == claim.token and task.expires > self.clock.now else None

    @initialize()
    def begin(self) -> None:
        """So that there is something to claim, and something to report."""
        for most in (1, 2, 3):
            self.offer(most=most, small=most)
        for _ in range(2):
            self.claim()

    @precondition(lambda self: len(self.model) < 6)
    @rule(most=st.integers(1, 3), small=st.integers(0, 5))
    def offer(self, most: int, small: int) -> None:
        """Another table's plan, so that what waits stays."""
        self.number += 1
        table = f"lake.t{self.number}"
        with self.database.begin() as tx:
            seen(tx, table)
            (id,) = offer(
                tx, table, [planned(f"f{self.number}", small_files=small)], self.clock.now,
                max_attempts=most, retry_after=RETRY,
            ).taken  # fmt: skip
            self.model[id] = ModelTask(id, task_store.task_by_id(tx, id).rank, most)

    @rule()
    def claim(self) -> None:
        """The smallest rank of what waits, or nothing where nothing waits."""
        with self.database.begin() as tx:
            claim = attempts.claim(tx, [], "w", life=LIFE, time=self.clock)
        for task in self.model.values():
            if task.state == "failed" and present(task.not_before) <= self.clock.now:
                task.state = "planned"
        waiting = [task for task in self.model.values() if task.state == "planned"]
        if not waiting:
            assert claim is None
            return
        assert claim is not None
        task = min(waiting, key=lambda task: (task.rank, task.id))
        assert claim.task.id == task.id
        task.state, task.holder, task.expires = "claimed", claim.attempt_id, self.clock.now + LIFE
        task.attempts, task.token = task.attempts + 1, task.token + 1
        assert (claim.token, claim.task.attempts) == (task.token, task.attempts)
        self.claims.append(claim)

    @precondition(lambda self: self.claims)
    @rule(back=_BACK, off=_OFF)
    def renew(self, back: int, off: int) -> None:
        """True for the live attempt alone."""
        claim = self.claims[-1 - min(back, len(self.claims) - 1)]
        task = self._holds(claim, claim.token + off)
        with self.database.begin() as tx:
            renewed = attempts.renew(
                tx, claim.attempt_id, claim.token + off, life=LIFE, time=self.clock
            )
        assert renewed is (task is not None)
        if task is not None:
            task.expires = self.clock.now + LIFE

    @precondition(lambda self: self.claims)
    @rule(back=_BACK, off=_OFF, what=st.sampled_from(["merged", "failed", "release"]))
    def report(self, back: int, off: int, what: str) -> None:
        """Taken of the live attempt alone."""
        claim = self.claims[-1 - min(back, len(self.claims) - 1)]
        task, token = self._holds(claim, claim.token + off), claim.token + off
        try:
            with self.database.begin() as tx:
                if what == "merged":
                    attempts.merged(tx, claim.attempt_id, token, **MERGE, time=self.clock)
                elif what == "failed":
                    attempts.failed(tx, claim.attempt_id, token, "broken", time=self.clock)
                else:
                    attempts.release(tx, claim.attempt_id, token, time=self.clock)
        except Refused:
            assert task is None
            return
        assert task is not None
        if what == "merged":
            task.state = "merged"
            task.merges.append(claim.attempt_id)
        elif what == "release":
            task.state, task.attempts = "planned", task.attempts - 1
        elif task.attempts == task.most:
            task.state = "quarantined"
        else:
            task.state, task.not_before = "failed", self.clock.now + RETRY

    @rule()
    def expire(self) -> None:
        """As many as the model says."""
        lost = 0
        for task in self.model.values():
            if task.state == "claimed" and task.expires <= self.clock.now:
                lost += 1
                task.state = "quarantined" if task.attempts == task.most else "planned"
        with self.database.begin() as tx:
            assert attempts.expire(tx, time=self.clock) == lost

    @precondition(lambda self: any(task.state == "merged" for task in self.model.values()))
    @rule(end=st.sampled_from(["committed", "conflicted", "wrong"]))
    def commit(self, end: str) -> None:
        """What is merged ends, one way or another."""
        task = next(task for task in self.model.values() if task.state == "merged")
        with self.database.begin() as tx:
            if end == "committed":
                assert commits.committed(tx, [task.id], self.number, time=self.clock)
            elif end == "conflicted":
                commits.conflicted(tx, task.id, "gone", time=self.clock)
            else:
                commits.wrong(tx, task.id, "rows", time=self.clock)
        ends = {"committed": "committed", "conflicted": "superseded", "wrong": "quarantined"}
        task.state = ends[end]

    @rule(seconds=st.sampled_from([1, 30, 59, 60, 90]))
    def wait(self, seconds: int) -> None:
        """Time goes on."""
        self.clock.passes(seconds=seconds)

    @invariant()
    def agrees(self) -> None:
        """States, attempts and tokens are those of the model; nobody holds a task with another."""
        with self.database.begin() as tx:
            stored = {task.id: task for task in task_store.tasks(tx)}
            assert stored.keys() == self.model.keys()
            for id, task in self.model.items():
                found = stored[id]
                assert (found.state, found.attempts, found.token) == (
                    task.state, task.attempts, task.token,
                )  # fmt: skip
                assert found.attempts <= found.max_attempts
                assert len(task.merges) <= 1
                assert (found.state in LIVE) == (found.ended_at is None)
                live = [one for one in attempt_lookup.attempts_of(tx, id) if one.state == "live"]
                assert [one.id for one in live] == (
                    [task.holder] if task.state == "claimed" else []
                )
                assert found.state is TaskState.FAILED or found.not_before is None


@pytest.mark.proof
def test_attempts_do_what_their_model_does(database: Database) -> None:
    """Claims, renewals, reports with right and wrong tokens, expiry and commits, in any order."""
    run_state_machine_as_test(
        lambda: Attempts(database),  # type: ignore[arg-type]
        settings=settings(
            max_examples=ORDERS,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
