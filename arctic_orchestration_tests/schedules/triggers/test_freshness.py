"""``freshness``: state changes of Dagster's freshness policies."""

from datetime import UTC, datetime

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.event_log.event import Event, EventKey, EventKind
from arctic_orchestration.schedules.triggers import Arrivals, on

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def change(state: str | None) -> Event:
    return Event(kind=EventKind.FRESHNESS, subject="raw/orders", at=NOW, state=state)


def test_it_takes_changes_to_its_states() -> None:
    """One state, or several; what is not known is none of them."""
    one, several = (on.freshness("raw/orders", state=state) for state in ("fail", ["warn", "fail"]))
    taken = [
        (one.takes(change(state)), several.takes(change(state)))
        for state in ("pass", "warn", "fail", "unknown", None)
    ]
    no = (False, False)
    assert taken == [no, (False, True), (True, True), no, no]
    assert not one.takes(Event(kind=EventKind.PARTITION, subject="raw/orders", at=NOW))


def test_it_is_found_by_its_asset() -> None:
    """The asset must exist."""
    trigger = on.freshness("raw/orders", state="fail")
    assert trigger.keys("here") == (EventKey.of_freshness("raw/orders"),)
    assert trigger.asset_fields() == {"asset": "raw/orders"}


def test_it_fires_with_a_change() -> None:
    """From the first change on, as long as the job waits."""
    trigger = on.freshness("raw/orders", state=["warn", "fail"])
    none = trigger.evaluate([Arrivals()], NOW)
    assert (none.satisfied, none.reason) == (
        False,
        "the freshness of raw/orders has not changed to warn or fail",
    )
    fired = trigger.evaluate([Arrivals(events=1, first_at=NOW, last_at=NOW)], NOW)
    assert (fired.satisfied, fired.first_at) == (True, NOW)
    assert fired.reason == "the freshness of raw/orders changed to warn or fail"


@pytest.mark.parametrize("state", ["unknown", "FAIL", [], ["fail", "x"]])
def test_other_states_are_refused(state: str) -> None:
    """A schedule that waits for the state of a policy that is not known would wait for ever."""
    with pytest.raises(InvalidDefinition, match="freshness.state"):
        on.freshness("raw/orders", state=state)
