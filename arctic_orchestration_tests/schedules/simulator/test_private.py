"""The database of a simulation takes a short way to SQLite, and arrives where the long one does."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from arctic_orchestration.schedules.schedule_file import read_schedules
from arctic_orchestration.schedules.simulator import read_timeline, simulate, simulator
from arctic_orchestration.schedules.simulator.scratch_database import PrivateDatabase
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import locations
from arctic_orchestration_tests.present import present

STORIES = Path(__file__).parents[2] / "acceptance" / "stories"
NOW = datetime(2026, 1, 1, 12, 30, 0, 250, tzinfo=UTC)


@pytest.fixture
def private() -> Iterator[PrivateDatabase]:
    """A database with its schema, and two locations."""
    made = PrivateDatabase()
    with made.begin() as tx:
        names = [{"cluster": "c", "name": name} for name in ("one", "two")]
        tx.execute(sa.insert(locations), names)
    yield made
    made.close()


def test_a_statement_that_comes_again_gives_what_it_gave_the_first_time(
    private: PrivateDatabase,
) -> None:
    """The first and second time another way is taken; moments are moments, and none is none."""
    update = (
        sa.update(locations)
        .where(locations.c.name == sa.bindparam("of"))
        .values(ticked_at=sa.bindparam("moment"))
    )
    select = sa.select(locations.c.name, locations.c.ticked_at).where(
        locations.c.cluster == sa.bindparam("wanted"), locations.c.name != "zero"
    )
    with private.begin() as tx:
        for _ in range(3):
            tx.execute(update, {"of": "one", "moment": NOW})
            rows = tx.execute(select, {"wanted": "c"}).all()
            assert [tuple(row) for row in rows] == [("one", NOW), ("two", None)]
            assert [row.ticked_at for row in rows] == [NOW, None]
            first = tx.execute(select, {"wanted": "c"}).mappings().first()
            assert dict(present(first)) == {"name": "one", "ticked_at": NOW}


def test_an_update_writes_the_columns_it_is_given_each_time(private: PrivateDatabase) -> None:
    """One statement object, executed with other columns, is another statement."""
    insert = sa.insert(locations)
    with private.begin() as tx:
        for number in range(3):
            tx.execute(insert, {"cluster": "d", "name": f"short {number}"})
            tx.execute(insert, {"cluster": "d", "name": f"long {number}", "next_event": 7})
        found = tx.execute(sa.select(locations.c.next_event).where(locations.c.cluster == "d"))
        assert sorted(found.scalars()) == [1, 1, 1, 7, 7, 7]


@pytest.mark.parametrize("story", ["spread_by_deadline", "at_least_every", "scheduler_down"])
def test_a_simulation_decides_the_same_on_an_ordinary_database(
    story: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With transactions of its own, and no shortcut."""
    schedules = read_schedules((STORIES / f"{story}.yaml").read_text(), name=story)
    timeline = read_timeline(STORIES / f"{story}.jsonl")
    quick = [found.to_json() for found in simulate(schedules, timeline)]
    url = f"sqlite:///{tmp_path / 'state.db'}"
    monkeypatch.setattr(simulator, "PrivateDatabase", lambda: Database.open(url))
    assert quick == [found.to_json() for found in simulate(schedules, timeline)]
