"""The picture of a task's history: a real daemon, submissions that end, and Dagster's UI."""

import os
import sys
import tempfile
from pathlib import Path

import sqlalchemy as sa
import yaml
from browser import Page, Picture, running, until, webserver

from arctic_orchestration.freshness import definitions, skip_list, submissions
from arctic_orchestration.freshness.submission import Submission
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.freshness_tables import task_submissions

_TASK = "punctuality"
_CLUSTER = "default"


def take_task_pictures(tab: Page, into: Path) -> list[Path]:
    """Makes an instance with two tasks, submits them until all is seen, and takes the picture."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        (home / "dagster.yaml").write_text(yaml.safe_dump({"telemetry": {"enabled": False}}))
        file = str(Path(__file__).with_name("task_lake.py"))
        location = {"python_file": {"relative_path": file, "location_name": "lake"}}
        (home / "workspace.yaml").write_text(yaml.safe_dump({"load_from": [location]}))
        ours = {key: value for key, value in os.environ.items() if not key.startswith("ARCTIC_")}
        daemon = [str(Path(sys.executable).with_name("dagster-daemon")), "run"]
        daemon += ["-w", str(home / "workspace.yaml")]
        database = Database.open(f"sqlite:///{home / 'arctic.db'}")
        with webserver(home) as url, running(daemon, env={**ours, "DAGSTER_HOME": str(home)}):
            _Story(database).run()
            picture = Picture(
                file="task_history.png",
                path=f"/assets/arctic/tasks/{_TASK}?view=events",
                height=900,
                ready="document.body.innerText.includes('waited (s)')",
            )
            return [tab.take(url, picture, into)]


class _Story:
    """Submissions that end in different ways, one after the other."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def run(self) -> None:
        """Until the last of them was reported.

        Errors:
            TimeoutError: one did not end in time.
        """
        until(self._is_registered, "the tasks are registered")
        self._submit()
        self._submit()
        # Two that are looked at together: one makes it, and the other shares its run.
        self._submit(force=True, times=2)
        with self._database.begin() as tx:
            reason = "the feed brings yesterday's flights"
            skip_list.skip(tx, _TASK, reason, by="ann", cluster=_CLUSTER)
        self._submit(force=True)

    def _is_registered(self) -> bool:
        with self._database.read() as tx:
            return bool(definitions.declared(tx, [_TASK]))

    def _submit(self, *, force: bool = False, times: int = 1) -> None:
        made: list[Submission] = []
        with self._database.begin() as tx:
            for _ in range(times):
                made += submissions.submit(tx, [_TASK], cluster=_CLUSTER, by="ann", force=force)
        until(lambda: self._are_reported(made), f"{_TASK} has ended")

    def _are_reported(self, made: list[Submission]) -> bool:
        here = task_submissions.c
        query = sa.select(here.id).where(here.id.in_([one.id for one in made]))
        with self._database.read() as tx:
            found = tx.execute(query.where(here.reported_at.is_not(None))).all()
        return len(found) == len(made)
