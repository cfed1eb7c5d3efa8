"""When runs were created and reached their stages."""

from pathlib import Path

import dagster as dg
import pytest

from arctic_orchestration.event_log.run_moments import created_at


def test_on_sqlite_the_record_of_a_run_has_its_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading an event costs milliseconds, and makes the file of a run that has none."""

    def read(*_: object, **__: object) -> None:
        raise AssertionError("an event was read")

    monkeypatch.setattr(dg.DagsterInstance, "get_records_for_run", read)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        run = instance.add_run(dg.DagsterRun("load", run_id="8a2b1c9e-0000-4000-8000-000000000000"))
        record = instance.get_run_record_by_id(run.run_id)
        assert record is not None
        assert created_at(instance, record) == record.create_timestamp
