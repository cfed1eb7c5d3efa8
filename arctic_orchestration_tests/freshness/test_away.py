"""The state database is away: nothing begins, nothing is lost, what runs goes on for a while."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest
import sqlalchemy as sa

from arctic_orchestration.errors import DatabaseUnavailable, LeaseLost, Refused
from arctic_orchestration.freshness import ownership, run_start, submissions
from arctic_orchestration.freshness.owned_run import Running
from arctic_orchestration.freshness.run_outcomes import Outcomes
from arctic_orchestration.freshness.run_start import acquired_manually, begun
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.freshness.imagined import World, spec
from arctic_orchestration_tests.freshness.outage import Outage, outage
from arctic_orchestration_tests.patience import until

__all__ = ["outage"]


@pytest.fixture
def impatient(state: Database, database_url: str) -> Iterator[Database]:
    """The same database, of which nobody waits long for an answer."""
    made = Database(database_url, busy_seconds=0.1)
    yield made
    made.close()


def _manually(database: Database, life: timedelta) -> AbstractContextManager[Running]:
    return acquired_manually(
        database,
        task="flights",
        cluster="east",
        location="lake",
        run_id="r",
        outcomes=Outcomes(life=life),
    )


def test_a_tick_begins_nothing_and_loses_nothing(
    world: World, impatient: Database, outage: Outage
) -> None:
    """What was submitted before is made when the database is back."""
    east = world.place(spec("flights"))
    east.lifecycle.database = impatient
    (submission,) = east.submit("flights")
    with outage(), pytest.raises(DatabaseUnavailable):
        east.tick()
    assert east.runs.known == {}
    assert world.state_of(submission) is SubmissionState.SUBMITTED
    assert world.run_all() == ["flights"]
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def test_a_run_goes_on_until_its_lease_can_be_trusted_no_more(
    state: Database, impatient: Database, outage: Outage
) -> None:
    """Then it is stopped, by its own steady clock, and what it would publish is refused."""
    life = timedelta(seconds=2)
    with pytest.raises(LeaseLost), _manually(impatient, life) as running:
        with outage():
            trusted_until = running.renewal.lease.trusted_until
            while time.monotonic() < trusted_until - 0.2:
                running.check()
            until(running.renewal.lost.is_set, "the lease is lost")
            assert time.monotonic() >= trusted_until
        running.publish()
    with state.read() as tx:
        row = ownership.row_of(tx, "flights")
    assert row.last_success_at is None
    assert row.token == 1


def test_a_publication_waits_for_the_database_while_the_lease_holds(
    state: Database, impatient: Database, outage: Outage
) -> None:
    """It is back in time."""
    with _manually(impatient, timedelta(seconds=60)) as running:
        with outage(), pytest.raises(DatabaseUnavailable):
            running._publish()
        running.publish()
    with state.read() as tx:
        assert ownership.row_of(tx, "flights").last_token == 1


def test_a_token_that_cannot_be_shown_is_trusted_while_the_lease_holds(
    impatient: Database, outage: Outage
) -> None:
    """And no longer."""
    with pytest.raises(LeaseLost), _manually(impatient, timedelta(seconds=1)) as running, outage():
        running.show()
        until(running.renewal.lost.is_set, "the lease is lost")
        running.show()


def test_a_publication_whose_answer_was_lost_is_recognised(
    state: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was committed, and is not made a second time."""
    real = Running._publish
    answers = []

    def once_without_answer(running: Running) -> object:
        answers.append(real(running))
        if len(answers) == 1:
            raise DatabaseUnavailable("the answer was lost")
        return answers[-1]

    monkeypatch.setattr(Running, "_publish", once_without_answer)
    with _manually(state, timedelta(seconds=60)) as running:
        at = running.publish()
    assert answers == [at, at]
    with state.read() as tx:
        assert ownership.row_of(tx, "flights").last_success_at == at
        publications = tx.execute(sa.text("select count(*) from arctic_task_publications")).scalar()
    assert publications == 1


def test_a_run_that_has_not_begun_waits_for_the_database(
    world: World, impatient: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is there already; it begins as soon as it may."""
    east = world.place(spec("flights"))
    (submission,) = east.submit("flights")
    east.tick()
    answers = iter([DatabaseUnavailable("away"), DatabaseUnavailable("still")])
    real = Database.begin

    def begin(database: Database) -> AbstractContextManager[sa.Connection]:
        for error in answers:
            raise error
        return real(database)

    monkeypatch.setattr(Database, "begin", begin)
    monkeypatch.setattr("arctic_orchestration.freshness.run_start._RETRY_SECONDS", 0.01)
    with begun(
        state_of_run := world.state, task="flights", submission=submission.id, token=1, run_id="r",
        outcomes=world.outcomes,
    ) as running:  # fmt: skip
        assert state_of_run is running.database
        running.publish()
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def test_a_manual_run_does_not_wait_for_another_run(state: Database) -> None:
    """Only for the database."""
    other = acquired_manually(
        state, task="flights", cluster="west", location="lake", run_id="other"
    )
    with (
        _manually(state, timedelta(seconds=60)),
        pytest.raises(Refused, match="being made by run r of cluster east"),
        other,
    ):
        raise AssertionError


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_manual_run_that_is_refused_waits_for_no_submission(
    state: Database, impatient: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever publishes has locked that, and waits for the row of the task."""
    monkeypatch.setattr(run_start, "_BEGINS_FOR", timedelta(0))
    with _manually(state, timedelta(seconds=60)) as running, state.begin() as tx:
        submissions.by_id(tx, running.submission.id, lock=True)
        other = acquired_manually(
            impatient, task="flights", cluster="west", location="lake", run_id="other",
        )  # fmt: skip
        with pytest.raises(Refused, match="being made by run r of cluster east"), other:
            raise AssertionError
