"""How submissions of each task ended, as the history of an asset that Dagster shows and plots.

The task ``punctuality/carriers`` has the asset ``arctic/tasks/punctuality/carriers``. The sensor
reports each end of a submission to it without a run, including ends that never had a run. These
assets are separate from the tasks' own: an event of a task's asset would count as an arrival and
fire schedules, or make the task fresh.

Only links lead from a task to its history, no edge of Dagster's graph: selecting a task and all
below it for a job would select an asset that no job can make, and Dagster refuses such a job.
"""

import logging
import re
import time as steady
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import dagster as dg

from arctic_orchestration.dagster_internals import UnresolvedAssetJobDefinition
from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.freshness.criteria import TaskSpec, age_in_words, need_in_words
from arctic_orchestration.freshness.ended_submissions import (
    Ending,
    ending,
    note_reported,
    unreported,
)
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time

GROUP = "arctic_tasks"
#: the metadata entry that links a task's asset or job to its history
HISTORY = "arctic/task_history"

#: characters that would break an address or a selection
_UNSAFE = re.compile(r"[^\w.-]")

#: Dagster's storage accepts some 60 events a second
_REPORTED_AT_ONCE = 100
#: the time limit of a tick, which defers the rest; Dagster evaluates no other sensor meanwhile
_REPORT_SECONDS = 2.0
#: how many steps of a submission are shown, from the last
_STEPS_SHOWN = 50

_Job = TypeVar("_Job", bound=dg.JobDefinition | UnresolvedAssetJobDefinition)

_log = logging.getLogger("arctic.freshness.history")


@lru_cache(maxsize=65_536)
def history_key(task: str) -> dg.AssetKey:
    """Returns the asset key of a task's history, unique for each task name.

    Characters that would break the address of its page, or a selection of assets, are written as
    numbers: ``load (new)`` is ``load~20~~28~new~29~``.
    """
    return dg.AssetKey(["arctic", "tasks", *(_component(part) for part in task.split("/"))])


def history_asset(spec: TaskSpec) -> dg.AssetSpec:
    """Returns the asset of a task's history, which is never computed."""
    own: dict[str, Any] = {"task": spec.name, "need": need_in_words(spec.freshness_hours,
                                                                    spec.timezone)}  # fmt: skip
    if spec.kind == "asset":
        own["asset"] = dg.MetadataValue.asset(dg.AssetKey.from_user_string(spec.target))
    else:
        own["job"] = spec.target
    return dg.AssetSpec(
        key=history_key(spec.name),
        group_name=GROUP,
        description=f"How the submissions of the task {spec.name} ended on this cluster, each "
        "with its reason: also those for which nothing was run.",
        metadata=own,
    )


def history_link(spec: TaskSpec) -> dict[str, dg.MetadataValue[Any]]:
    """Returns metadata that links the asset or job of a task to its history."""
    return {HISTORY: dg.MetadataValue.asset(history_key(spec.name))}


def with_history(job: _Job, spec: TaskSpec) -> _Job:
    """Returns the job of a task with a link to its history."""
    linked: Any = job.with_metadata({**(job.metadata or {}), **history_link(spec)})
    return linked  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Histories:
    """Reports how submissions ended, for one code location of one cluster.

    Args:
        database: the state database.
        cluster: the name of this Dagster instance.
        location: the code location.
        tasks: what it declares, by name.
    """

    database: Database
    cluster: str
    location: str
    tasks: Mapping[str, TaskSpec]

    def report(self, context: dg.SensorEvaluationContext) -> int:
        """Reports the unreported ends, oldest first; returns how many.

        Each end is marked once Dagster has stored it: a crash in between repeats that one and loses
        none. The next tick retries what cannot be reported now; nothing is raised.

        Cost: one statement where nothing is to be reported; else a handful for each end, and one
        event of Dagster, for at most two seconds.
        """
        give_up_at = steady.monotonic() + _REPORT_SECONDS
        done = 0
        try:
            for id in self._unreported():
                if steady.monotonic() > give_up_at:
                    break
                done += self._report(id, context)
        except Exception as error:
            context.log.warning("ends of submissions are reported later: %s", error)
            _log.warning("ends of submissions are reported later", exc_info=error)
        return done

    def _unreported(self) -> list[str]:
        with self.database.read() as tx:
            return unreported(tx, self.cluster, self.location, limit=_REPORTED_AT_ONCE)

    def _report(self, id: str, context: dg.SensorEvaluationContext) -> bool:
        text = f"the end of submission {id} is reported later"
        try:
            with self.database.read() as tx:
                found = ending(tx, id)
            if found is None:
                return False
            text = f"the end of submission {id} of {found.submission.task} is reported later"
            context.instance.report_runless_asset_event(self._observation(found))
        except DatabaseUnavailable:
            raise
        except Exception as error:
            # The others are still reported.
            context.log.warning("%s: %s", text, error)
            _log.warning(text, exc_info=error)
            return False
        with self.database.begin() as tx:
            note_reported(tx, id, database_time(tx))
        return True

    def _observation(self, end: Ending) -> dg.AssetObservation:
        submission = end.submission
        state, reason = submission.state.value, submission.reason
        return dg.AssetObservation(
            asset_key=history_key(submission.task),
            description=reason if reason.startswith(f"{state}: ") else f"{state}: {reason}",
            metadata={
                "ended as": submission.state.value,
                "reason": submission.reason,
                **self._links(end),
                **_numbers(end),
                "submission": submission.id,
                "submitted by": submission.by,
                "submitted at": dg.MetadataValue.timestamp(submission.submitted_at),
                "ended at": dg.MetadataValue.timestamp(end.at),
                **_freshness(end),
                **({"step": end.step.value} if end.step is not None else {}),
                "history": dg.MetadataValue.json([one.entry for one in end.steps[-_STEPS_SHOWN:]]),
            },
        )

    def _links(self, end: Ending) -> dict[str, Any]:
        submission, made, links = end.submission, end.success, dict[str, Any]()
        spec = self.tasks.get(submission.task)
        if spec is not None and spec.kind == "asset":
            links["task"] = dg.MetadataValue.asset(dg.AssetKey.from_user_string(spec.target))
        elif spec is not None:
            links["task"] = dg.MetadataValue.job(spec.target, self.location)
        if submission.run_id is not None:
            links["run"] = dg.MetadataValue.dagster_run(submission.run_id)
        elif end.shared is not None:
            links["shares submission"] = end.shared.id
            if end.shared.run_id is not None:
                links["shares run"] = self._run(end.shared.run_id, end.shared.cluster)
        if made is not None and made.run_id is not None:
            links["made last by run"] = self._run(made.run_id, made.cluster)
        return links

    def _run(self, run_id: str, cluster: str | None) -> Any:
        """Returns a link to a run of this Dagster instance, or text for a run of another."""
        if cluster == self.cluster:
            return dg.MetadataValue.dagster_run(run_id)
        return f"run {run_id} of cluster {cluster}"


def _numbers(end: Ending) -> dict[str, int | float]:
    """Returns the numbers that Dagster plots."""
    numbers: dict[str, int | float] = {
        "waited (s)": round(end.waited.total_seconds(), 3),
        "was made for (s)": round(end.made_for.total_seconds(), 3),
        "attempts": end.submission.attempt,
        "fresh": int(end.fresh),
    }
    if end.success is not None:
        age = end.at - end.success.at
        numbers["age of the last success (h)"] = round(age.total_seconds() / 3600, 3)
    return numbers


def _freshness(end: Ending) -> dict[str, Any]:
    made_at = end.success.at if end.success is not None else None
    since = format_moment(end.submission.required_since)
    known: dict[str, Any] = {
        "freshness": f"{age_in_words(made_at, end.at)}; to be made since {since}"
    }
    if made_at is not None:
        known["last success"] = dg.MetadataValue.timestamp(made_at)
    return known


def _component(part: str) -> str:
    """Returns one key component; addresses would lose empty ones, ``.`` and ``..``."""
    if part.strip(".") == "":
        return "~~" + "".join(f"~{ord(letter):x}~" for letter in part)
    return _UNSAFE.sub(lambda found: f"~{ord(found[0]):x}~", part)
