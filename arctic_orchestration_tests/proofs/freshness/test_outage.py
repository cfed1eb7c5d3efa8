"""Two clusters whose state database goes away: nothing new begins, and no submission is lost."""

import time
from collections import Counter
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
import sqlalchemy as sa

from arctic_orchestration.freshness import submissions
from arctic_orchestration.freshness.definitions import declared
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.freshness_tables import task_publications
from arctic_orchestration_tests.freshness.outage import Outage, outage
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs.freshness.outages import PLAIN, Cluster

__all__ = ["outage"]

pytestmark = pytest.mark.proof

#: how long leases hold: longer than the outage, or shorter
_LIFE = {"none": 30.0, "short": 30.0, "long": 4.0}
#: how much later than it should something may be noticed on a busy machine
_LATE = 5.0


@pytest.mark.parametrize("how_long", ["none", "short", "long"])
def test_while_the_database_is_away_nothing_begins_and_then_all_is_made_once(
    state: Database,
    database_url: str,
    tmp_path: Path,
    outage: Outage,
    how_long: Literal["none", "short", "long"],
) -> None:
    """The east makes ``held`` meanwhile; both have submissions at which nobody has looked yet.

    An outage that is shorter than the lease changes nothing for the run. In a longer one it is
    stopped when its lease can be trusted no more, and replaced under another token. Without an
    outage, the control, the west begins at once.
    """
    life = timedelta(seconds=_LIFE[how_long])
    away = how_long != "none"
    east, west = (Cluster(name, database_url, tmp_path, life) for name in ("east", "west"))
    try:
        until(lambda: _registered(state), "both have registered their tasks")
        submitted = _submit(state, "held")
        until(lambda: bool(east.journal("at work")), "the east is at work")
        submitted += _submit(state, "held") + _submit(state, "child")
        states = [SubmissionState.RUNNING, SubmissionState.SHARING, SubmissionState.WAITING]
        until(
            lambda: _states(state, submitted) == states,
            "one shares, and the child waits",
        )
        for cluster in (east, west):
            cluster.pause()
        submitted += _submit(state, "held", *PLAIN)

        with outage() if away else nullcontext():
            since = time.monotonic()
            for cluster in (east, west):
                cluster.resume()
            if away:
                for cluster in (east, west):
                    until(partial(_is_away, cluster, since), "it is missed")
            else:
                until(lambda: _begun(west, since) == set(PLAIN), "the west begins")
            if how_long == "long":
                until(lambda: bool(east.journal("lost")), "the lease is lost")
            else:
                # It is still at work, and wants to publish what it has made.
                looks = len(east.journal("at work"))
                until(lambda: len(east.journal("at work")) > looks, "it goes on")
            back = time.monotonic()
            if away:
                assert _begun(east, since) | _begun(west, since) == set()
            east.open_gate()
            if how_long == "short":
                opened = time.monotonic()
                until(partial(_is_away, east, opened), "it is missed again")
                assert not east.journal("published")
                back = time.monotonic()
        until(lambda: _all_ended(state, submitted), "all submissions have ended")
        # It writes that into its journal after it has published.
        until(lambda: bool(east.journal("published")), "the east has noted its publication")
    finally:
        east.end()
        west.end()

    succeeded, fresh = SubmissionState.SUCCEEDED, SubmissionState.FRESH
    of_plain = [succeeded] * len(PLAIN)
    assert _states(state, submitted) == [succeeded, fresh, succeeded, fresh, *of_plain]
    with state.read() as tx:
        published = tx.execute(sa.select(task_publications)).mappings().all()
    assert Counter(row["task"] for row in published) == Counter(["held", "child", *PLAIN])
    token = 2 if how_long == "long" else 1
    assert [row["token"] for row in published if row["task"] == "held"] == [token]
    (success,) = east.journal("published")
    assert success["at"] > back
    if how_long == "long":
        (lost,) = east.journal("lost")
        last = east.journal("at work", token=1)[-1]
        assert last["trusted_until"] - _LATE < last["at"]
        assert last["checked_from"] < last["trusted_until"]
        assert last["trusted_until"] <= lost["at"] < last["trusted_until"] + _LATE
        assert lost["at"] < back


def _registered(state: Database) -> bool:
    with state.read() as tx:
        return len(declared(tx, ["held", "child", *PLAIN])) == 2 + len(PLAIN)


def _submit(state: Database, *tasks: str) -> list[Submission]:
    with state.begin() as tx:
        return submissions.submit(tx, list(tasks), cluster="west", by="ann")


def _states(state: Database, submitted: list[Submission]) -> list[SubmissionState]:
    with state.read() as tx:
        found = submissions.by_ids(tx, [one.id for one in submitted])
    return [found[one.id].state for one in submitted]


def _all_ended(state: Database, submitted: list[Submission]) -> bool:
    return all(one.ended for one in _states(state, submitted))


def _times_away(cluster: Cluster, since: float) -> int:
    return sum(one["at"] > since for one in cluster.journal("away"))


def _begun(cluster: Cluster, since: float) -> set[str]:
    return {one["task"] for one in cluster.journal("begun") if one["at"] > since}


def _is_away(cluster: Cluster, since: float) -> bool:
    """Whether the database was missed three times."""
    return _times_away(cluster, since) >= 3
