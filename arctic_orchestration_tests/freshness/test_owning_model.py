"""Owners of one task do anything in any order, against a model in memory."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from arctic_orchestration.errors import Refused
from arctic_orchestration.freshness import ownership
from arctic_orchestration.freshness.ownership import Acquired, FreshMeanwhile, Owner
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.freshness.imagined import LIFE, NOON
from arctic_orchestration_tests.standing_clock import Clock

_HOLDER = Owner(cluster="east", location="lake")
_WHO = st.sampled_from(["ann", "ben", "cid"])
_AGO = st.sampled_from([0, 1, 59, 60, 61, 600])


def machine(state: Database) -> type[RuleBasedStateMachine]:
    """The machine over one database; each of its lives has a task of its own."""
    lives = iter(range(1_000_000))

    class Owners(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.task = f"task{next(lives)}"
            self.clock = Clock()
            self.owner: str | None = None
            self.token, self.expires_at = 0, NOON
            self.success: datetime | None = None
            self.acquired_at: datetime | None = None
            self.success_acquired_at: datetime | None = None
            #: by owner, the last token that it was given
            self.given: dict[str, int] = {}

        @rule(seconds=_AGO)
        def time_passes(self, seconds: int) -> None:
            self.clock.passes(seconds=seconds)

        @rule(who=_WHO, ago=_AGO, force=st.booleans())
        def acquire(self, who: str, ago: int, force: bool) -> None:
            now = self.clock.now
            since = now - timedelta(seconds=ago)
            made = self.success_acquired_at if force else self.success
            fresh = made is not None and made >= since
            held = self.owner is not None and self.expires_at > now
            with state.begin() as tx:
                found = ownership.acquire(
                    tx, self.task, who, _HOLDER, since=since, force=force, life=LIFE,
                    time=self.clock,
                )  # fmt: skip
            if fresh:
                assert isinstance(found, FreshMeanwhile)
            elif held:
                assert isinstance(found, ownership.Busy)
                assert found.row.owner == self.owner
            else:
                self.token += 1
                assert found == Acquired(token=self.token, expires_at=now + LIFE)
                self.owner, self.expires_at, self.acquired_at = who, now + LIFE, now
                self.given[who] = self.token

        @rule(who=_WHO)
        def renew(self, who: str) -> None:
            mine = self._is(who)
            with state.begin() as tx:
                assert mine == ownership.renew(
                    tx, self.task, who, self.given.get(who, 0), life=LIFE, time=self.clock
                )
            if mine:
                self.expires_at = self.clock.now + LIFE

        @rule(who=_WHO)
        def another_attempt(self, who: str) -> None:
            mine = self._is(who)
            with state.begin() as tx:
                token = ownership.renew_with_new_token(
                    tx, self.task, who, self.given.get(who, 0), new_owner=who, life=LIFE,
                    time=self.clock,
                )  # fmt: skip
            assert (token is not None) == mine
            if mine:
                self.token += 1
                assert token == self.token
                self.given[who] = self.token
                self.acquired_at = self.clock.now
                self.expires_at = self.clock.now + LIFE

        @rule(who=_WHO)
        def give_back(self, who: str) -> None:
            mine = self._is(who)
            with state.begin() as tx:
                assert mine == ownership.give_back(tx, self.task, who, self.given.get(who, 0))
            if mine:
                self.owner = None

        @rule(who=_WHO)
        def publish(self, who: str) -> None:
            may = self._is(who) and self.expires_at > self.clock.now
            token = self.given.get(who, 0)
            try:
                with state.begin() as tx:
                    at = ownership.publish(tx, self.task, who, token, time=self.clock)
            except Refused:
                assert not may
                return
            assert may
            assert at == self.clock.now
            self.owner, self.success = None, self.clock.now
            self.success_acquired_at = self.acquired_at

        @invariant()
        def the_row_is_as_it_should_be(self) -> None:
            with state.read() as tx:
                row = ownership.row_of(tx, self.task)
            assert (row.owner, row.token, row.last_success_at) == (
                self.owner, self.token, self.success,
            )  # fmt: skip

        def _is(self, who: str) -> bool:
            return self.owner == who and self.given.get(who) == self.token

    return Owners


def test_owners_and_tokens_are_those_of_the_model(state: Database) -> None:
    """Nothing that three owners do makes two of them the owner."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    how: dict[str, Any] = {"deadline": None, "suppress_health_check": checks}
    run_state_machine_as_test(
        machine(state), settings=settings(max_examples=30, stateful_step_count=25, **how)
    )


def test_the_model_notices_a_publication_without_a_check(
    state: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(ownership, "why_not", lambda *_: None)
    how: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
    with pytest.raises(Exception):  # noqa: B017, PT011 - an assertion, or what the database says
        run_state_machine_as_test(
            machine(state),
            # It need not be described in the shortest way.
            settings=settings(
                max_examples=50, stateful_step_count=25, phases=[Phase.generate], **how
            ),
        )
