"""The tag of a run with its process is there before the run starts, and stays."""

import json
import time
from collections.abc import Mapping

import dagster as dg
import pytest

from arctic_orchestration.run_launcher.launcher import HOST_TAG
from arctic_orchestration_tests.run_launcher.hosted_place import Make


def test_a_run_starts_when_it_is_tagged(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster writes all of a run that it has read: a start between would lose the tag."""
    place = make()
    run_id = place.create()
    storage = place.instance.run_storage
    add_run_tags = place.instance.add_run_tags

    def slowly(run_id: str, tags: Mapping[str, str]) -> None:
        ended = time.monotonic() + 1
        while storage.get_runs(dg.RunsFilter([run_id], statuses=[dg.DagsterRunStatus.STARTING])):
            if time.monotonic() > ended:
                return add_run_tags(run_id, tags)
        pytest.fail("it has started")

    monkeypatch.setattr(place.instance, "add_run_tags", slowly)
    place.launch(run_id)
    assert json.loads(place.ended(run_id).tags[HOST_TAG])["run"] == run_id
