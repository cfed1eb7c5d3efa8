"""Several sensors of several clusters at once over one state database: each task is made once."""

import threading
from collections import Counter
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness import ownership
from arctic_orchestration.freshness.ownership import Acquired, Owner
from arctic_orchestration.freshness.run_requests import TOKEN_TAG
from arctic_orchestration.freshness.run_start import begun
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time, insert
from arctic_orchestration.state.freshness_tables import is_live, task_submissions, tasks
from arctic_orchestration_tests.freshness.imagined import LIFE, Place, Run, World, spec
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.proofs.freshness.sizes import FULL

pytestmark = pytest.mark.proof

#: tasks in layers, each needing two of the layer above
LAYERS, WIDTH = (8, 12) if FULL else (3, 4)


def graph() -> list[Any]:
    """Layers of tasks; the tasks of a layer are those of both clusters."""
    made = []
    for layer in range(LAYERS):
        for place in range(WIDTH):
            above = {f"t{layer - 1}_{(place + one) % WIDTH}": 24.0 for one in range(2)}
            made.append(spec(f"t{layer}_{place}", above if layer else {}, freshness_hours=24))
    return made


class Crowd:
    """Two sensors of each of two clusters, each a thread; and their runs."""

    def __init__(self, state: Database) -> None:
        self.world = World(state)
        self.world.clock = database_time  # type: ignore[assignment]
        specs = graph()
        self.places = [
            self.world.place(*specs, cluster=cluster)
            for cluster in ("east", "west", "east", "west")
        ]
        for first, second in ((0, 2), (1, 3)):
            # Two sensors of one location, as while a code server is replaced: one Dagster.
            self.places[second].runs = self.places[first].runs
            self.places[second].deployed(specs)
        self.begun: Counter[str] = Counter()
        self.problems: list[BaseException] = []
        self._lock = threading.Lock()

    def work(self) -> None:
        """All of them, until nothing waits."""
        threads = [threading.Thread(target=self._be, args=(place,)) for place in self.places]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)

    def _be(self, place: Place) -> None:
        try:
            while self.waiting() and not self.problems:
                result = place.lifecycle.tick()
                with self._lock:
                    for request in result.requests:
                        place.runs.request_run(request)
                for run in self._started(place):
                    with begun(
                        self.world.state,
                        task=run.request.task,
                        submission=run.request.submission,
                        token=int(run.tags[TOKEN_TAG]),
                        run_id=run.run_id,
                    ) as running:
                        running.publish()
        except BaseException as problem:
            self.problems.append(problem)

    def _started(self, place: Place) -> list[Run]:
        """Runs that nobody has started, which this one does."""
        with self._lock:
            runs = place.waiting_runs()
            for run in runs:
                place.runs.becomes(run.run_id, RunStatus.STARTED)
                self.begun[run.request.task] += 1
            return runs

    def waiting(self) -> int:
        with self.world.state.read() as tx:
            query = sa.select(sa.func.count()).select_from(task_submissions).where(is_live)
            return int(tx.execute(query).scalar_one())


def test_each_task_is_begun_and_published_once(state: Database) -> None:
    """All are wanted ten times, and by their children; no deadlock occurs."""
    crowd = Crowd(state)
    last = [f"t{LAYERS - 1}_{place}" for place in range(WIDTH)]
    for number in range(10):
        crowd.places[number % 2].submit(*last)
    crowd.work()
    assert crowd.problems == []
    assert crowd.waiting() == 0
    names = {f"t{layer}_{place}" for layer in range(LAYERS) for place in range(WIDTH)}
    assert crowd.begun == Counter(dict.fromkeys(names, 1))


def test_without_the_check_that_a_task_is_free_it_begins_twice(
    state: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same crowd, with a statement that takes the task whoever has it."""
    monkeypatch.setattr(ownership, "acquire", _taken_from_anybody)
    # Whose task is held shares its run, and does not come to the statement.
    monkeypatch.setattr(ownership.TaskRow, "is_held", lambda row, now: False)
    crowd = Crowd(state)
    crowd.places[0].submit("t0_0")
    crowd.places[1].submit("t0_0")
    for place in crowd.places[:2]:
        place.tick()
    crowd.work()
    assert crowd.begun["t0_0"] >= 2


def _taken_from_anybody(
    tx: sa.Connection, task: str, owner: str, holder: Owner, **_: Any
) -> Acquired:
    now = database_time(tx)
    values = {
        "owner": owner,
        "acquired_at": now,
        "expires_at": now + LIFE,
        "cluster": holder.cluster,
        "location": holder.location,
        "submission": holder.submission,
        "begun_at": None,
    }
    new = insert(tx, tasks).values(task=task, token=1, **values)
    taken = new.on_conflict_do_update(
        index_elements=["task"], set_={**values, "token": tasks.c.token + 1}
    )
    token = tx.execute(taken.returning(tasks.c.token)).scalar_one()
    return Acquired(token=token, expires_at=now + LIFE)
