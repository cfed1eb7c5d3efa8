"""``check``: evaluations of asset checks that passed or failed."""

from datetime import UTC, datetime
from typing import Any

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.event_log.event import Event, EventKey, EventKind
from arctic_orchestration.schedules.triggers import Arrivals, on

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def evaluation(*, passed: bool | None, check: str = "no_nulls", **fields: Any) -> Event:
    form = {"severity": "error", **fields}
    return Event(
        kind=EventKind.CHECK, subject="raw/orders", at=NOW, check=check, passed=passed, **form
    )


def test_it_takes_evaluations_with_its_result() -> None:
    """One whose result is not known is neither passed nor failed."""
    passes, fails = on.check("raw/orders"), on.check("raw/orders", status="failed")
    assert passes.takes(evaluation(passed=True))
    assert not passes.takes(evaluation(passed=False))
    assert fails.takes(evaluation(passed=False))
    assert not fails.takes(evaluation(passed=True))
    assert not any(trigger.takes(evaluation(passed=None)) for trigger in (passes, fails))


def test_it_takes_any_check_unless_it_names_one() -> None:
    """By the name of the check."""
    other = evaluation(passed=True, check="few_rows")
    assert on.check("raw/orders").takes(other)
    assert not on.check("raw/orders", "no_nulls").takes(other)
    assert on.check("raw/orders", "few_rows").takes(other)


def test_failures_can_be_chosen_by_their_severity() -> None:
    """A severity of what passed says nothing, and is refused."""
    errors = on.check("raw/orders", status="failed", severity="error")
    assert errors.takes(evaluation(passed=False))
    assert not errors.takes(evaluation(passed=False, severity="warn"))
    with pytest.raises(InvalidDefinition, match="a severity only with status: failed"):
        on.check("raw/orders", severity="error")


def test_it_takes_no_arrival_of_the_asset() -> None:
    """Also if one is found by its key."""
    arrival = Event(kind=EventKind.PARTITION, subject="raw/orders", at=NOW)
    assert not on.check("raw/orders").takes(arrival)


def test_it_is_found_by_its_asset() -> None:
    """The asset must exist."""
    trigger = on.check("raw/orders", "no_nulls")
    assert trigger.keys("here") == (EventKey.of_check("raw/orders"),)
    assert trigger.asset_fields() == {"asset": "raw/orders"}


def test_it_fires_at_its_count() -> None:
    """Evaluations count, also those of one partition."""
    trigger = on.check("raw/orders", "no_nulls", status="failed", severity="warn", count=2)
    one = trigger.evaluate([Arrivals(events=1, partitions=1)], NOW)
    assert not one.satisfied
    assert one.reason == (
        "1 of 2 evaluations of check no_nulls of raw/orders with severity warn failed"
    )
    assert trigger.evaluate([Arrivals(events=2, partitions=1)], NOW).satisfied
    reason = on.check("raw/orders").evaluate([Arrivals()], NOW).reason
    assert reason == "0 of 1 evaluations of any check of raw/orders passed"
