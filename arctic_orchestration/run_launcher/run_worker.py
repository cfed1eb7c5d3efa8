"""The instance of a run's process: the run claims its job right before Dagster says it started.

RUN_START is the event that a run's process stores right before its first step. The claim precedes
it. A run with a refused claim is canceled, which Dagster neither retries nor reports as a failure,
and its process exits.
"""

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dagster import DagsterEventType, DagsterInstance, DagsterRun

from arctic_orchestration.run_launcher.job_runs import is_retry
from arctic_orchestration.run_tags import JOB_TAG
from arctic_orchestration.schedules.run_claims import Refusal, claim
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

if TYPE_CHECKING:
    from dagster import EventLogEntry

_ENDS = {DagsterEventType.RUN_SUCCESS, DagsterEventType.RUN_FAILURE, DagsterEventType.RUN_CANCELED}


class RunWorkerInstance(DagsterInstance):
    """An instance that lets a run begin only if it counts for its job."""

    def handle_new_event(self, event: "EventLogEntry", **batch: Any) -> None:
        """Stores the event; before RUN_START, claims the job of the run.

        Errors:
            SystemExit: another run counts, or the job has ended. Dagster's run worker treats it as
                the end of the process, not as a failure of the run.
            DatabaseUnavailable: the state database did not answer; the run fails unbegun.
        """
        if event.dagster_event_type is DagsterEventType.RUN_START:
            self._begin(event.run_id)
        super().handle_new_event(event, **batch)

    def _begin(self, run_id: str) -> None:
        run = self.get_run_by_id(run_id)
        if run is None:
            return
        refusal = self._claim(run)
        if refusal is None:
            return
        if refusal.begun_run_id == run_id:
            self._exit_duplicate(run)
        elif refusal.begun_run_id is not None:
            self._cancel(run, f"run {refusal.begun_run_id} of the same job began before this one")
        else:
            self._cancel(run, f"its job is {refusal.state.value}: {refusal.reason}")

    def _claim(self, run: DagsterRun) -> Refusal | None:
        job = run.tags[JOB_TAG]
        url = Settings.from_environment().database_url
        with closing(Database.open(url)) as database, database.begin() as tx:
            refusal = claim(tx, job, run.run_id)
            begun = refusal.begun_run_id if refusal else None
            if begun not in (None, run.run_id) and is_retry(run):
                before = self.get_run_by_id(str(begun))
                if before is None or (before.is_finished and _root(before) == _root(run)):
                    refusal = claim(tx, job, run.run_id, instead_of=begun)
        return refusal

    def _cancel(self, run: DagsterRun, reason: str) -> None:
        message = f"Not started: {reason}."
        self.report_run_canceled(run, message)
        raise SystemExit(message)

    def _exit_duplicate(self, run: DagsterRun) -> None:
        """Leaves the run to the process that has claimed it: two daemons launched it.

        The second launch marked it as starting; if it had ended before, its end is restored.
        """
        message = "Not started: this run was launched twice, and another process executes it."
        self.report_engine_event(message, run)
        ends = self.all_logs(run.run_id, of_type=_ENDS)
        if ends:
            end = ends[-1]
            assert end.dagster_event is not None
            ended_at = datetime.fromtimestamp(end.timestamp, UTC)
            self.run_storage.handle_run_event(run.run_id, end.dagster_event, ended_at)
        raise SystemExit(message)


def _root(run: DagsterRun) -> str:
    return run.root_run_id or run.run_id
