"""Queues and groups that people pause and resume, in the state database."""

from datetime import UTC, datetime, timedelta

import pytest

from arctic_orchestration.errors import NotFound
from arctic_orchestration.run_queue.pauses import (
    Pausable,
    Pause,
    check_known,
    in_force,
    manual_pauses,
    store,
)
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration.state.database import Database

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)
RULES = Rules.parse(
    {
        "groups": {"warehouse": {"limit": 1}},
        "queues": {"low": {"paused": True}, "high": {}},
    }
)
LOW, HIGH = (Pausable.QUEUE, "low"), (Pausable.QUEUE, "high")


def paused(database: Database, cluster: str = "default") -> dict[tuple[Pausable, str], Pause]:
    with database.read() as tx:
        return dict(in_force(RULES, manual_pauses(tx, cluster)))


def test_without_a_word_only_what_is_configured_is_paused(database: Database) -> None:
    """It says where that stands."""
    found = paused(database)
    assert found.keys() == {LOW}
    assert found[LOW].text == "queue low is paused in dagster.yaml"


def test_a_queue_and_a_group_are_paused_and_resumed(database: Database) -> None:
    """Each by itself."""
    with database.begin() as tx:
        store(tx, "default", "queue", "high", "maintenance", NOON)
        store(tx, "default", "group", "warehouse", "", NOON)
    found = paused(database)
    assert found.keys() == {LOW, HIGH, (Pausable.GROUP, "warehouse")}
    assert found[HIGH].text == "queue high is paused since 2026-03-02 12:00:00Z (maintenance)"
    text = found[Pausable.GROUP, "warehouse"].text
    assert text == "group warehouse is paused since 2026-03-02 12:00:00Z"
    with database.begin() as tx:
        store(tx, "default", "queue", "high", "", LATER, paused=False)
    assert paused(database).keys() == {LOW, (Pausable.GROUP, "warehouse")}


def test_what_is_configured_as_paused_is_resumed_manually_and_paused_again(
    database: Database,
) -> None:
    """What was set last stands over the configuration."""
    with database.begin() as tx:
        store(tx, "default", "queue", "low", "", NOON, paused=False)
    assert paused(database) == {}
    with database.begin() as tx:
        store(tx, "default", "queue", "low", "again", LATER)
    assert paused(database)[LOW].text == "queue low is paused since 2026-03-02 13:00:00Z (again)"


def test_of_two_words_the_last_one_stands(database: Database) -> None:
    """With its reason and its time; a word is kept once."""
    with database.begin() as tx:
        store(tx, "default", "queue", "high", "first", NOON)
        store(tx, "default", "queue", "high", "second", LATER)
        store(tx, "default", "queue", "low", "by hand", NOON)
    found = paused(database)
    assert (found[HIGH].reason, found[HIGH].at) == ("second", LATER)
    assert found[LOW].reason == "by hand"
    with database.read() as tx:
        assert len(manual_pauses(tx, "default")) == 2


def test_clusters_do_not_see_each_other(database: Database) -> None:
    """Two Dagster instances that share the database."""
    with database.begin() as tx:
        store(tx, "north", "queue", "high", "", NOON)
        store(tx, "south", "queue", "low", "", NOON, paused=False)
    assert paused(database, "north").keys() == {LOW, HIGH}
    assert paused(database, "south") == {}
    assert paused(database).keys() == {LOW}


def test_reasons_may_be_long_and_of_any_letters(database: Database) -> None:
    """As people write them."""
    reason = "Wartung am Lager – bis 18 Uhr; 'quoted' \"twice\" %s :x\n" + "ж" * 2000
    with database.begin() as tx:
        store(tx, "default", "queue", "high", reason, NOON)
    assert paused(database)[HIGH].reason == reason


def test_a_pause_that_is_rolled_back_was_none(database: Database) -> None:
    """It is part of the caller's transaction."""
    with pytest.raises(RuntimeError), database.begin() as tx:
        store(tx, "default", "queue", "high", "", NOON)
        raise RuntimeError
    assert paused(database).keys() == {LOW}


def test_other_things_cannot_be_paused(database: Database) -> None:
    """There are queues and groups."""
    with database.begin() as tx, pytest.raises(ValueError, match="window"):
        store(tx, "default", "window", "nightly", "", NOON)


def test_names_that_no_rule_has_are_refused_with_those_that_there_are() -> None:
    """The queue ``default`` is one, without being configured."""
    check_known(RULES, Pausable.QUEUE, "low")
    check_known(RULES, Pausable.QUEUE, "default")
    check_known(RULES, Pausable.GROUP, "warehouse")
    with pytest.raises(NotFound) as refusal:
        check_known(RULES, Pausable.QUEUE, "warehouse")
    assert str(refusal.value) == (
        "dagster.yaml has no queue warehouse in run_coordinator.config.queues; "
        "it has: default, high, low. There is a group warehouse: with --group"
    )
    with pytest.raises(NotFound, match="it has: none"):
        check_known(Rules(), Pausable.GROUP, "a")


def test_what_no_rule_has_any_more_is_not_paused(database: Database) -> None:
    """As every rule that is gone, it holds nothing."""
    with database.begin() as tx:
        store(tx, "default", "queue", "taken_out", "", NOON)
        store(tx, "default", "group", "taken_out", "", NOON)
    assert paused(database).keys() == {LOW}
