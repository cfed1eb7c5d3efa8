"""Windows of the run queue: remembered between passes, and kept closed while pauses are unknown."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.run_queue.rules import TimeWindow
from arctic_orchestration.run_queue.windows import OpenWindows
from arctic_orchestration.schedules.constraints.window import DAYS, Window

NIGHT = TimeWindow.parse({"start": "22:00", "end": "06:00"})
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
TEXTS = st.times().map(lambda time: f"{time:%H:%M}")
#: with a zone whose clocks change by half an hour, one far east, and one without changes
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe",
                         "Pacific/Kiritimati", "Africa/Casablanca"])  # fmt: skip
FORMS = st.fixed_dictionaries(
    {
        "start": TEXTS,
        "end": TEXTS | st.just("24:00"),
        "timezone": ZONES,
        "days": st.lists(st.sampled_from(DAYS), min_size=1, max_size=7, unique=True),
    }
).filter(lambda form: form["start"] != form["end"])
#: around the days on which clocks change in 2026, and any others
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC)) | (
    st.builds(
        lambda day, seconds: datetime.combine(date(*day), time(), UTC) + timedelta(seconds=seconds),
        st.sampled_from([(2026, 3, 8), (2026, 3, 29), (2026, 10, 25), (2026, 11, 1),
                         (2026, 4, 4), (2026, 10, 3)]),
        st.integers(-86_400, 2 * 86_400),
    )
)  # fmt: skip


def at(hours: float) -> datetime:
    return MIDNIGHT + timedelta(hours=hours)


@given(form=FORMS, moments=st.lists(MOMENTS, min_size=1, max_size=12))
def test_what_is_remembered_is_what_the_window_would_say_afresh(
    form: dict[str, Any], moments: list[datetime]
) -> None:
    """At any times in any order, as when the clock of a host is put back; and just around edges."""
    rule, plain = TimeWindow.parse(form), Window.parse(form)
    windows = OpenWindows()
    for moment in moments:
        edge = plain.closes_at(moment) or plain.opens_at(moment)
        for now in (moment, edge - timedelta(microseconds=1), edge, moment):
            assert windows.is_open("w", rule, now) is plain.is_open(now)
            assert windows.was_closed("w") is not plain.is_open(now)


def test_an_edge_belongs_to_what_begins_with_it() -> None:
    """Open at 22:00:00, closed at 06:00:00."""
    windows = OpenWindows()
    found = [windows.is_open("w", NIGHT, at(hours)) for hours in (5.999, 6, 21.999, 22, 23, 30)]
    assert found == [True, False, False, True, True, False]


def test_windows_are_remembered_apart() -> None:
    """Each under its name."""
    day = TimeWindow.parse({"start": "06:00", "end": "22:00"})
    windows = OpenWindows()
    assert windows.is_open("night", NIGHT, at(1))
    assert not windows.is_open("day", day, at(1))
    assert (windows.was_closed("night"), windows.was_closed("day")) == (False, True)


def test_a_window_is_worked_out_once_until_it_changes() -> None:
    """Control: a moment later than the edge asks the rule again."""
    calls: list[datetime] = []

    class Counted(TimeWindow):
        def closes_at(self, now: datetime) -> datetime | None:
            calls.append(now)
            return super().closes_at(now)

    rule = Counted.parse({"start": "22:00", "end": "06:00"})
    windows = OpenWindows()
    for minutes in range(8 * 60):
        assert windows.is_open("w", rule, at(22) + timedelta(minutes=minutes))
    assert len(calls) == 1
    assert not windows.is_open("w", rule, at(30))
    assert len(calls) == 2


def test_a_window_that_was_never_looked_at_was_closed() -> None:
    """Nobody knows better."""
    assert OpenWindows().was_closed("w")


def test_a_window_that_is_held_stays_closed_until_it_is_released() -> None:
    """Its time comes and goes; holding others adds to what is held."""
    windows = OpenWindows()
    assert not windows.is_open("w", NIGHT, at(12))
    windows.hold(frozenset({"w"}))
    windows.hold(frozenset({"v"}))
    assert not windows.is_open("w", NIGHT, at(23))
    assert not windows.is_open("v", NIGHT, at(23))
    assert windows.is_open("u", NIGHT, at(23))
    assert windows.was_closed("w")
    windows.release()
    assert windows.is_open("w", NIGHT, at(23))
    assert windows.is_open("v", NIGHT, at(23))


def test_a_window_that_was_released_is_as_its_rule_says_at_once() -> None:
    """What was remembered before it was held does not count longer than its edge."""
    windows = OpenWindows()
    assert windows.is_open("w", NIGHT, at(23))
    windows.hold(frozenset({"w"}))
    assert not windows.is_open("w", NIGHT, at(24))
    windows.release()
    assert windows.is_open("w", NIGHT, at(25))
    assert not windows.is_open("w", NIGHT, at(31))
