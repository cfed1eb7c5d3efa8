"""The wait reasons reported to runs, and the last pass over the queue."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.run_queue.plan import Wait
from arctic_orchestration.state import dialect
from arctic_orchestration.state.run_queue_tables import queue_passes, queue_waits


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitReason:
    """The reason last reported to a run, and since when it holds."""

    gate: str
    reason: str
    since: datetime

    @property
    def kind(self) -> str:
        """The kind of the gate."""
        return self.gate.partition(":")[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class LastPass:
    """The time of the last pass over the queue, and its problem, if any."""

    at: datetime
    problem: str | None


def reported_waits(tx: sa.Connection, cluster: str) -> dict[str, str]:
    """Returns the gate last reported to each run."""
    query = sa.select(queue_waits.c.run_id, queue_waits.c.gate)
    rows = tx.execute(query.where(queue_waits.c.cluster == cluster))
    return {row.run_id: row.gate for row in rows}


def reported_wait(tx: sa.Connection, cluster: str, run_id: str) -> WaitReason | None:
    """Returns the reason last reported to a run; None: nothing, or it no longer waits."""
    return reported_to(tx, cluster, [run_id]).get(run_id)


def reported_to(tx: sa.Connection, cluster: str, run_ids: Collection[str]) -> dict[str, WaitReason]:
    """Returns the reasons last reported to some runs; those that do not wait are left out."""
    theirs = dialect.among(tx, queue_waits.c.run_id, run_ids)
    rows = tx.execute(sa.select(queue_waits).where(queue_waits.c.cluster == cluster, theirs))
    return {
        row.run_id: WaitReason(gate=row.gate, reason=row.reason, since=row.since) for row in rows
    }


def cause_of(gate: str) -> str:
    """Returns a gate's kind with the name of its rule; what else it has may differ for each run.

    ``window:night``, ``paused:queue:low``, ``turn``; ``tag`` without the value, which is a run's.
    """
    kind, *names = gate.split(":")
    if kind == "tag":
        return kind
    return ":".join([kind, *names[: 2 if kind == "paused" else 1]])


def alternate(before: str | None, after: str) -> bool:
    """Returns whether both gates open and close as runs start and end; None: there was none."""
    kinds = {(gate or "").partition(":")[0] for gate in (before, after)}
    return kinds <= _ALTERNATING


_ALTERNATING = frozenset({"interval", "rate", "group", "program", "tag", "turn"})


def note(
    tx: sa.Connection,
    cluster: str,
    waits: Mapping[str, Wait],
    now: datetime,
    programs: Mapping[str, str],
) -> None:
    """Stores reported reasons, with what each run runs, as far as that is known."""
    if not waits:
        return
    new = dialect.insert(tx, queue_waits)
    fields = ("gate", "reason", "since", "cause", "program")
    new = new.on_conflict_do_update(
        index_elements=["cluster", "run_id"],
        set_={field: new.excluded[field] for field in fields},
    )
    tx.execute(
        new,
        [
            {"cluster": cluster, "run_id": run_id, "gate": wait.gate, "reason": wait.reason,
             "since": now, "cause": cause_of(wait.gate), "program": programs.get(run_id, "")}
            for run_id, wait in waits.items()
        ],
    )  # fmt: skip


def forget(tx: sa.Connection, cluster: str, run_ids: Collection[str]) -> None:
    """Deletes the reported reasons of runs that no longer wait."""
    if run_ids:
        theirs = dialect.among(tx, queue_waits.c.run_id, sorted(run_ids))
        tx.execute(sa.delete(queue_waits).where(queue_waits.c.cluster == cluster, theirs))


def forget_all(tx: sa.Connection, cluster: str) -> None:
    """Deletes all reported reasons: no pass will delete them."""
    tx.execute(sa.delete(queue_waits).where(queue_waits.c.cluster == cluster))


def note_pass(tx: sa.Connection, cluster: str, now: datetime, problem: str | None) -> None:
    """Stores the time of a pass over the queue."""
    values = {"passed_at": now, "problem": problem}
    new = dialect.insert(tx, queue_passes).values(cluster=cluster, **values)
    tx.execute(new.on_conflict_do_update(index_elements=["cluster"], set_=values))


def last_pass(tx: sa.Connection, cluster: str) -> LastPass | None:
    """Returns the last recorded pass, or None."""
    row = tx.execute(sa.select(queue_passes).where(queue_passes.c.cluster == cluster)).first()
    return None if row is None else LastPass(at=row.passed_at, problem=row.problem)
