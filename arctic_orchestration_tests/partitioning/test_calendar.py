"""The keys of definitions as they are listed, and the key that is nearest to a text."""

from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

import pytest

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.partitioning import near_keys
from arctic_orchestration.partitioning.calendar import Calendar
from arctic_orchestration.partitioning.forms import definition_of
from arctic_orchestration.partitioning.key_space import KeySpace, store_of
from arctic_orchestration.partitioning.near_keys import nearest

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
DAILY = {"daily": {"start": "2026-01-01", "timezone": "Europe/Berlin"}}
HOURLY = {"hourly": {"start": "2026-03-01-00:00", "timezone": "Europe/Berlin"}}
REGIONS = {"static": ["emea", "amer", "apac"]}
MONTHLY = {"monthly": {"start": "2025-01-01", "end": "2026-02-01"}}


def space(form: object) -> KeySpace:
    return KeySpace(definition_of(form, field="partitions"), store_of(None))


@pytest.mark.parametrize(
    ("form", "first", "last", "expected"),
    [
        (DAILY, None, None, ["2026-03-29", "2026-03-28", "2026-03-27"]),
        (DAILY, None, "2026-01-02", ["2026-01-02", "2026-01-01"]),
        (DAILY, "2026-03-29", None, ["2026-03-29"]),
        # On this day an hour is missing.
        (HOURLY, None, "2026-03-29T03:59", ["2026-03-29-03:00", "2026-03-29-01:00"]),
        (HOURLY, None, "2026-03-28", ["2026-03-28-23:00", "2026-03-28-22:00"]),
        (MONTHLY, "2025-12-15", None, ["2026-01-01", "2025-12-01"]),
        # Neither has a neighbour in the calendar: the day before, in UTC, or the day after.
        (DAILY, "0001-01-01", "2026-01-02", ["2026-01-02", "2026-01-01"]),
        (MONTHLY, "2025-12-15", "9999-12-31", ["2026-01-01", "2025-12-01"]),
        (MONTHLY, "2025-12-15", "9999-12-31T23:59-12:00", ["2026-01-01", "2025-12-01"]),
        (REGIONS, None, None, ["emea", "amer", "apac"]),
        (REGIONS, "amer", None, ["amer", "apac"]),
        (REGIONS, None, "amer", ["emea", "amer"]),
        (
            {"multi": {"date": DAILY, "region": REGIONS}},
            "2026-03-28",
            None,
            [f"2026-03-{day}|{region}" for day in (29, 28) for region in ("amer", "apac", "emea")],
        ),
        (
            {"multi": {"a": {"static": ["x", "y"]}, "b": {"static": ["1", "2"]}}},
            "x|2",
            "y|1",
            ["x|2", "y|1"],
        ),
        ({"daily": {"start": "2027-01-01"}}, None, None, []),
    ],
)
def test_windows_are_listed_newest_first_and_others_in_their_order(
    form: object, first: str | None, last: str | None, expected: list[str]
) -> None:
    """Up to the window that goes on; both limits are included. Pages list the same."""
    calendar = Calendar(space(form), NOON, first, last)
    found = calendar.keys(None, len(expected) + (first is not None))
    assert sorted(found, key=calendar.rank) == found
    assert sorted(found) == sorted(expected)
    paged: list[str] = []
    while page := calendar.keys(paged[-1] if paged else None, 1):
        paged += page
        if len(paged) == len(found):
            break
    assert paged == found


def test_a_limit_that_is_no_key_and_no_date_is_refused() -> None:
    """With the nearest of static keys."""
    with pytest.raises(InvalidInput, match="did you mean emea?"):
        Calendar(space(REGIONS), NOON, "emae", None)
    with pytest.raises(InvalidInput, match="--to: got 'soon', expected a date such as 2026-01-31"):
        Calendar(space(DAILY), NOON, None, "soon")


def test_dynamic_partitions_are_not_listed() -> None:
    """Their keys are in Dagster's storage."""
    assert not Calendar.lists(space({"dynamic": "files"}))
    assert not Calendar.lists(space({"multi": {"date": DAILY, "file": {"dynamic": "files"}}}))
    assert Calendar.lists(space({"multi": {"date": DAILY, "region": REGIONS}}))


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        (DAILY, "2025-12-31", "2026-01-01"),
        (DAILY, "2026-3-5", "2026-03-05"),
        (DAILY, "2026-03-05T10:00", "2026-03-05"),
        (DAILY, "tomorrow", None),
        (HOURLY, "2026-03-05-03:30", "2026-03-05-03:00"),
        (MONTHLY, "2026-07-01", "2026-01-01"),
        (MONTHLY, "9999-12-31", "2026-01-01"),
        (DAILY, "9999-12-31", "2199-12-31"),
        (HOURLY, "0001-01-01T00:00+14:00", "2026-03-01-00:00"),
        (REGIONS, "emae", "emea"),
        (REGIONS, "zzz", None),
        ({"multi": {"date": DAILY, "region": REGIONS}}, "2026-01-05|emae", "2026-01-05|emea"),
        ({"multi": {"date": DAILY, "region": REGIONS}}, "2025-01-05|amer", "2026-01-01|amer"),
        ({"multi": {"date": DAILY, "region": REGIONS}}, "2026-01-05", None),
    ],
)
def test_the_nearest_key(form: object, text: str, expected: str | None) -> None:
    """Of windows, the one in which the moment lies, or the first or last one."""
    assert nearest(space(form), text) == expected


def test_the_nearest_of_many_keys_is_looked_for_among_those_that_begin_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of a hundred wrong keys of a request is compared, and a comparison takes long."""
    compared = []

    def matches(text: str, keys: Sequence[str], **how: Any) -> list[str]:
        compared.append(len(keys))
        return get_close_matches(text, keys, **how)

    monkeypatch.setattr(near_keys, "get_close_matches", matches)
    many = space({"static": [f"customer-{number:05}" for number in range(15_000)]})
    assert nearest(many, "customer-14x99") == "customer-14999"
    assert compared == [1000]


def test_pages_of_static_keys_list_all_of_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster takes long for those of two dimensions."""
    listed = []
    existing = KeySpace.existing

    def counted(of: KeySpace, at: datetime | None) -> tuple[str, ...]:
        listed.append(of)
        return existing(of, at)

    monkeypatch.setattr(KeySpace, "existing", counted)
    of_two = space({"multi": {"a": {"static": ["x", "y"]}, "b": {"static": ["1", "2"]}}})
    pages = [Calendar(of_two, NOON, None, None).keys(after, 2) for after in (None, "x|2", "y|2")]
    assert pages == [["x|1", "x|2"], ["y|1", "y|2"], []]
    assert listed == [of_two]
