"""Proof: the flights lake scheduled with Dagster alone, and ours in its shadow: nothing differs.

Files of March 2013 arrive in March 2026: a third of a day's weather, then the flights from one
airport. On the Sunday clocks change. Of the Saturday, the flights from the last airport come three
hours late, and an hour of its weather never: a person runs its weather nevertheless. A file comes
twice, and a run fails. What has to be decided, and run, was counted by hand.
``ARCTIC_PROOF=full``: a week, of which Dagster keeps ticks; else the night of the change on SQLite.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from arctic_orchestration.flights.feeding import DagsterAnnouncements
from arctic_orchestration.flights.feeds import FeedFile, HourFile, asset_of, files_of
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.cli.adopt_diff import show_differences
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration_tests.conftest import BACKENDS
from arctic_orchestration_tests.proofs.lake_of_flights import DECLARED, LATER
from arctic_orchestration_tests.schedules.adoption.project import Project

FULL = os.environ.get("ARCTIC_PROOF") == "full"
pytestmark = [
    pytest.mark.proof,
    pytest.mark.timeout(7_200),
    pytest.mark.parametrize("backend", BACKENDS if FULL else ["sqlite"], indirect=True),
]
MINUTE = timedelta(minutes=1)
#: of two passes of the daemon
STEP = timedelta(hours=1)


def at(text: str) -> datetime:
    """A moment of March 2026, in UTC; New York is five hours behind, from Sunday on four."""
    return datetime.fromisoformat(f"2026-03-{text}:00Z")


# Noon of Thursday to noon of Thursday; 18:00 of Saturday to 10:00 of Sunday.
BEGIN, END = (at("05T17:00"), at("12T16:00")) if FULL else (at("07T23:00"), at("08T14:00"))
SATURDAY = date(2013, 3, 9)
DAYS = [date(2013, 3, day) for day in (range(7, 15) if FULL else (9, 10))]
# It ends together with the routes of the same day: two ends of runs, and one summary.
BY_HAND, CHANGE = at("08T09:40"), at("08T06:00")

#: Decisions: each tick, arrival and watched end of a run. In the week:
#:  hourly                167 hours
#:  missing_files, nightly   7 nights
#:  flights_landed         2 of Thursday, 3 of each of the six days, one twice, 1 of the last
#:  weather_landed        167 hours, but one
#:  flights_made           7 days, Thursday to Wednesday
#:  routes_or_weather_made   routes of 7 days, and their weather
DECIDED = {
    "hourly": 167 if FULL else 15,
    "missing_files": 7 if FULL else 1,
    "nightly": 7 if FULL else 1,
    "flights_landed": 22 if FULL else 3,
    "weather_landed": 166 if FULL else 14,
    "flights_made": 7 if FULL else 1,
    "routes_or_weather_made": 14 if FULL else 2,
    "night_failed": 1,
}
#: Only Saturday has something missing, and its weather is a person's run.
RUNS = {
    "count_files": 167 if FULL else 15,
    "report_missing": 1,
    "alarm": 1,
    **dict.fromkeys(
        ("nightly_summary", "flights", "weather", "delays_by_route", "delay_summary"),
        7 if FULL else 1,
    ),
}


def arrivals() -> dict[datetime, list[FeedFile]]:
    """When which files arrive: an hour at five past the next one, two minutes before flights."""
    found: dict[datetime, list[FeedFile]] = {}
    hour = at("01T00:00")
    for file in files_of(DAYS):
        if isinstance(file, HourFile):
            hour = file.begins_at + LATER + 65 * MINUTE
            moment = hour
            if file.key == f"{SATURDAY}-20:00":
                continue
        else:
            moment = hour + 2 * MINUTE
        if file.key == f"{SATURDAY}|LGA":
            moment += 200 * MINUTE
        found.setdefault(moment, []).append(file)
        if file.key == f"{SATURDAY}|EWR":
            found.setdefault(at("08T11:20"), []).append(file)
    return found


class Week:
    """The time from the begin to the end."""

    def __init__(self, project: Project) -> None:
        self.project, self.due = project, arrivals()
        self.announcements = DagsterAnnouncements(project.instance)
        self.arrive(before=BEGIN)
        project.start(*DECIDED)
        project.daemon_pass()
        self.session = project.session()
        declared = {one.name: one for one in DECLARED}
        for name in DECIDED:
            drafted = self.session.find(name).drafted
            assert drafted.outcome.value == "exact", drafted.draft.reasons
            if name in declared:
                assert drafted.schedule is not None
                assert drafted.schedule.trigger == declared[name].trigger
                assert drafted.schedule.partitions == declared[name].partitions
            assert self.session.forward(self.session.cut_over(name, shadowed=True)) is None

    def until(self, end: datetime) -> "Week":
        """Files arrive, runs end and the daemon passes, in this order, again and again."""
        while self.project.now < end:
            before, after = self.project.now, self.project.now + STEP
            self.project.now = before + STEP / 2
            self.end_runs()
            if before < BY_HAND <= after:
                self.by_hand()
            self.arrive(before=after)
            self.project.now = after
            self.project.daemon_pass()
        return self

    def arrive(self, before: datetime) -> None:
        for moment in sorted(moment for moment in self.due if moment < before):
            self.project.now = moment
            for file in self.due.pop(moment):
                with self.project.at_now():
                    self.announcements.announce(asset_of(file.feed), file.key, {})
        self.project.now = max(self.project.now, BEGIN)

    def by_hand(self) -> None:
        remote = self.project.remote.get_full_job("make_weather")
        with self.project.at_now():
            create_run_for_test(
                self.project.instance,
                job_name="make_weather",
                remote_job_origin=remote.get_remote_origin(),
                tags={"dagster/partition": SATURDAY.isoformat()},
            )

    def end_runs(self) -> None:
        """All runs end, and have made their partition, but the summary of the Saturday's night."""
        instance = self.project.instance
        open_ = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]
        for run in instance.get_runs(dg.RunsFilter(statuses=open_)):
            partition = run.tags.get("dagster/partition")
            fails = (run.job_name, partition) == ("make_nightly_summary", "2026-03-07")
            last = dg.DagsterEventType.RUN_FAILURE if fails else dg.DagsterEventType.RUN_SUCCESS
            with self.project.at_now():
                if partition is not None and not fails:
                    asset = run.job_name.removeprefix("make_")
                    made = dg.AssetMaterialization(asset, partition=partition)
                    instance.report_runless_asset_event(made)
                for kind in (dg.DagsterEventType.RUN_START, last):
                    event = dg.DagsterEvent(event_type_value=kind.value, job_name=run.job_name)
                    instance.report_dagster_event(event, run_id=run.run_id)

    def differences(self) -> dict[str, list[tuple[datetime, str]]]:
        """When something differs, and what, by the name of the schedule."""
        return {
            item.name: [(one.at, one.what) for one in found]
            for item, adoption in self.session.shadows([])
            if (found := self.session.compare(item, adoption).differences)
        }


@pytest.fixture
def project(
    backend: str,
    database_url: str,
    dagster_instance: Callable[[str], dg.DagsterInstance],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Project]:
    module = "arctic_orchestration_tests.proofs.lake_of_flights"
    with Project.opened(
        dagster_instance(backend), database_url, module, monkeypatch, BEGIN
    ) as made:
        yield made


def test_no_decision_about_the_flights_differs(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each decision is made by both, and Dagster alone has runs."""
    week = Week(project).until(END)
    found = {item.name: week.session.compare(item, one) for item, one in week.session.shadows([])}
    assert week.differences() == {}
    assert {name: (one.compared, one.open) for name, one in found.items()} == {
        name: (count, 0) for name, count in DECIDED.items()
    }
    runs = project.runs()
    assert Counter(run.job_name.removeprefix("make_") for run in runs) == RUNS
    assert not any("arctic/schedule" in run.tags for run in runs)
    capsys.readouterr()
    assert not show_differences(week.session, [], as_json=False)
    line = f"0 differences in {sum(DECIDED.values())} decisions of {len(DECIDED)} objects in shadow"
    assert capsys.readouterr().out == f"{line}\n"
    week.session.close()


def changed(week: Week, name: str, **values: Any) -> None:
    """A person changes our schedule, and not Dagster's."""
    place = week.session.find(name).place
    with place.state.change() as (tx, location):
        stored = control.stored_by_name(tx, place.state.store, location, name)
        new = Schedule.parse({**stored.schedule.to_form(), **values}, field=name)
        control.apply(tx, place.state.store, location, [new], week.project.now, actor=place.actor)


def test_what_is_changed_in_the_middle_differs_from_then_on(project: Project) -> None:
    """The control: of each night from Sunday on, the day before the one that ended."""
    week = Week(project).until(CHANGE)
    cron = {"expression": "0 4 * * *", "timezone": "America/New_York", "offset": -1}
    changed(week, "nightly", trigger={"cron": {**cron, "partition": "last_ended"}})
    week.until(END)
    nights = range(8, 13) if FULL else (8,)
    assert week.differences() == {
        "nightly": [
            (
                at(f"{day:02}T08:00"),
                f"partition 2026-03-{day - 2:02} here, 2026-03-{day - 1:02} in Dagster",
            )
            for day in nights
        ]
    }
    week.session.close()
