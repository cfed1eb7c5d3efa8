"""Run queues on both storages."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance

from arctic_orchestration_tests.proofs.coordinator import shifted_time
from arctic_orchestration_tests.proofs.coordinator.run_queue import RunQueue


@pytest.fixture
def run_queue(
    backend: str,
    database_url: str,
    dagster_instance: Callable[[str], DagsterInstance],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., RunQueue]]:
    """Makes a run queue whose daemon runs: ``run_queue(groups=...)``; see :class:`RunQueue`.

    What is named is the configuration of the run coordinator, besides ``coordinator``,
    ``launcher`` and, where the daemon is started by the test, ``daemon=False``; with
    ``quick=False`` its passes are as far apart as Dagster has them.
    """
    made: list[RunQueue] = []
    offset = tmp_path / "offset.json"
    with shifted_time.in_place(offset) as time:

        def make(*, daemon: bool = True, **config: Any) -> RunQueue:
            own = {"coordinator", "launcher", "quick"} & config.keys()
            options = {key: config.pop(key) for key in own}
            home = Path(dagster_instance(backend).root_directory)
            # This process submits runs as the daemon does.
            monkeypatch.setenv("DAGSTER_HOME", str(home))
            monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
            queue = RunQueue(home, database_url, time, offset, config=config, **options)
            made.append(queue)
            if daemon:
                queue.start_daemon()
            return queue

        yield make
        for queue in made:
            queue.end()
