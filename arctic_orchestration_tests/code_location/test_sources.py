"""A plain sensor of Dagster as a source: each of its run requests is one job of ours."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration import Arctic, Schedule, on, only
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.dagster import sources as dagster_sources
from arctic_orchestration.state.source_tables import source_requests, sources
from arctic_orchestration_tests.code_location.conftest import Place
from arctic_orchestration_tests.code_location.source_sensors import (
    COLORS,
    RED,
    a,
    ab,
    asks,
    b,
    c,
    daily,
    days_child,
    lake,
    other,
    painting,
    takes,
    work,
)
from arctic_orchestration_tests.noise import noise
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until


def test_a_request_becomes_a_run_with_all_that_it_asks_for(place: Place) -> None:
    """Its configuration, tags and run key's job; the schedule's tags are under it."""
    seen = []

    def first(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest]:
        seen.append((context.cursor, context.last_run_key))
        context.update_cursor("7")
        yield dg.RunRequest(run_key="f7", run_config=RED, tags={"file": "7", "team": "x"})
        yield dg.RunRequest(tags={"file": "8"})

    def second(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        seen.append((context.cursor, context.last_run_key))
        return dg.SkipReason("no files")

    schedule = takes("files", tags={"team": "ops"}, run_config={"ops": {}})
    # A schedule's own tags and configuration apply to what a request leaves open.
    definitions = lake([asks(first, second)], schedule)
    result = place.tick(definitions)
    made = sorted(result.run_requests or (), key=lambda request: request.tags["file"])
    assert [request.job_name for request in made] == ["work", "work"]
    assert [request.run_config for request in made] == [RED, {"ops": {}}]
    assert [request.tags["team"] for request in made] == ["x", "ops"]
    assert place.rows(sources, "name", "cursor", "tick", "last_run_key", "note") == [
        ("files", "7", 1, "f7", "requested 2 runs, 2 of them new")
    ]
    assert place.rows(source_requests, "source", "run_key") == [("files", "f7")]
    again = place.tick(definitions)
    assert len(place.states()) == 2
    assert seen == [(None, None), ("7", "f7")]
    assert '"sources": {"files": "skipped: no files"}' in str(again.cursor)


def test_a_run_key_counts_once_for_ever(place: Place) -> None:
    """Whatever the cursor does; a request without one counts each time."""
    yielded = [dg.RunRequest(run_key="k"), dg.RunRequest(run_key="k"), dg.RunRequest()]
    definitions = lake([asks(yielded, yielded)], takes("files"))
    place.tick(definitions)
    assert len(place.states()) == 2
    place.tick(definitions)
    assert len(place.states()) == 3


def test_a_run_key_that_no_index_holds_fails_one_job(place: Place) -> None:
    """Once: it is known afterwards, and another long one is another."""
    yielded = [dg.RunRequest(run_key=noise(6_000)), dg.RunRequest(run_key="k")]
    other = dg.RunRequest(run_key=noise(5_999) + "x")
    definitions = lake([asks(yielded, [*yielded, other])], takes("files"))
    assert len(place.tick(definitions).run_requests or ()) == 1
    assert sorted(state for _, state, _ in place.states()) == ["failed", "launching"]
    assert {key[:100] for (key,) in place.rows(source_requests, "run_key")} == {noise(100), "k"}
    place.tick(definitions)
    assert [state for _, state, _ in place.states()].count("failed") == 2


def test_constraints_hold_the_requested_runs(place: Place) -> None:
    """With a place for one, the second request waits for the run of the first."""
    many = [dg.RunRequest(run_key=key) for key in "ab"]
    schedule = takes("files", constraints=[only.concurrency(1)])
    definitions = lake([asks(many)], schedule)
    assert len(place.tick(definitions).run_requests or ()) == 1
    assert sorted(state for _, state, _ in place.states()) == ["launching", "waiting_constraints"]


def test_partition_and_assets_of_a_request_reach_the_run(place: Place) -> None:
    """Of a partitioned job, of some assets of a job, and of some assets of a selection."""
    a_key, b_key = dg.AssetKey("a"), dg.AssetKey("b")
    of_day = asks(dg.RunRequest(partition_key="tuesday"), name="day", job=daily)
    of_job = asks(dg.RunRequest(asset_selection=[a_key]), name="part", job=ab)
    of_assets = asks(
        dg.SensorResult(run_requests=[dg.RunRequest(asset_selection=[b_key])]),
        name="selected",
        job=None,
        target=[a, b],
    )
    of_child = asks(
        dg.RunRequest(partition_key="monday"), name="child", job=None, target=days_child
    )
    schedules = [
        takes("day", daily, "day"),
        # With partitions: none, a run that no request gives a partition would fail.
        takes("child", dg.AssetSelection.assets("days_child"), "child"),
        takes("part", "ab", "part"),
        takes("selected", dg.AssetSelection.assets("a", "b"), "selected"),
    ]
    definitions = lake([of_day, of_job, of_assets, of_child], *schedules)
    dg.Definitions.validate_loadable(definitions)
    made = {r.tags["arctic/schedule"]: r for r in place.tick(definitions).run_requests or ()}
    assert made["day"].partition_key == "tuesday"
    assert made["child"].partition_key == "monday"
    assert made["part"].job_name == "ab"
    assert made["part"].asset_selection == [a_key]
    assert made["selected"].asset_selection == [b_key]


def test_new_dynamic_partitions_are_there_for_the_run(place: Place) -> None:
    """Those that an evaluation adds, and requests a run of; one that it deletes is gone."""
    place.instance.add_dynamic_partitions("colors", ["gray"])
    result = dg.SensorResult(
        run_requests=[dg.RunRequest(partition_key="red")],
        dynamic_partitions_requests=[
            COLORS.build_add_request(["red"]),
            COLORS.build_delete_request(["gray"]),
        ],
    )
    definitions = lake([asks(result, job=painting)], takes("files", painting))
    (made,) = place.tick(definitions).run_requests or ()
    assert made.partition_key == "red"
    assert place.instance.get_dynamic_partitions("colors") == ["red"]


def test_one_bad_request_does_not_stop_those_beside_it(place: Place) -> None:
    """Each is a failed job with the reason; the good one runs."""
    many = [
        dg.RunRequest(run_key="job", job_name="other"),
        dg.RunRequest(run_key="tag", tags={"arctic/job": "mine"}),
        dg.RunRequest(run_key="null", tags={"a": "b\0"}),
        dg.RunRequest(run_key="long", tags={"note": noise(6_000)}),
        dg.RunRequest(run_key="json", run_config={"ops": {"step": object()}}),
        dg.RunRequest(run_key="check", asset_check_keys=[dg.AssetCheckKey(dg.AssetKey("a"), "x")]),
        dg.RunRequest(run_key="stale", stale_assets_only=True),
        dg.RunRequest(run_key="day", partition_key="monday"),
        dg.RunRequest(run_key=noise(6_000)),
        dg.RunRequest(run_key="key", partition_key=noise(6_000)),
        dg.RunRequest(run_key="config", run_config={"ops": {"none": {}}}),
        dg.RunRequest(run_key="assets", asset_selection=[dg.AssetKey("a")]),
        dg.RunRequest(run_key="good"),
    ]
    definitions = lake([asks(many)], takes("files"))
    assert len(place.tick(definitions).run_requests or ()) == 1
    states = place.states()
    assert [state for _, state, _ in states].count("failed") == len(many) - 1
    reasons = "\n".join(reason for _, _, reason in states)
    for expected in (
        "its request is for job other, and s runs job work: give the job a schedule of its own",
        "tag arctic/job: expected no tag that begins with arctic/",
        "expected text that a database can hold",
        "Dagster refuses its run: tag note: got '6,004 bytes: ",
        "run_config: expected values that JSON can hold",
        "it has asset_check_keys, which a source cannot have",
        "it has stale_assets_only, which a source cannot have",
        "monday",
        f"run_key: got '{noise(100)}'..., expected text of at most 1,000 bytes in UTF-8",
        f"partition_key: got '{noise(100)}'..., expected text of at most 1,000 bytes in UTF-8",
        "Dagster refuses its run",
    ):
        assert expected in reasons, (expected, reasons)


def test_assets_outside_of_the_target_are_refused_by_name(place: Place) -> None:
    """With those that the schedule runs."""
    sensor = asks(dg.RunRequest(asset_selection=[dg.AssetKey("c")]), job=None, target=[a, b, c])
    definitions = lake([sensor], takes("files", dg.AssetSelection.assets("a", "b")))
    assert not place.tick(definitions).run_requests
    assert place.states() == [("s", "failed", "its request selects c, and s runs a, b")]


def test_each_job_of_a_sensor_has_its_schedule(place: Place) -> None:
    """A request for a job that no schedule takes is dropped aloud, and its key stays unused."""
    many = [dg.RunRequest(run_key=name, job_name=name) for name in ("work", "other", "daily")]
    sensor = asks(many, job=None, jobs=[work, other, daily])
    schedules = [takes("files", t, t.name, job=t.name) for t in (work, other)]
    definitions = lake([sensor], *schedules)
    made = place.tick(definitions).run_requests or ()
    assert sorted(str(request.job_name) for request in made) == ["other", "work"]
    ((note,),) = place.rows(sources, "note")
    assert note == (
        "requested 3 runs, 2 of them new; dropped 1 that no schedule takes "
        "(first: run key daily, job daily)"
    )
    assert place.rows(source_requests, "run_key") == [("other",), ("work",)]


def test_a_sensor_that_fails_stores_nothing_and_stops_no_other(place: Place) -> None:
    """It is evaluated again with the same cursor; so is one with events of assets."""
    seen = []

    def fails(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest]:
        seen.append(context.cursor)
        context.update_cursor("lost")
        yield dg.RunRequest(run_key="x")
        raise OSError("no network")

    reports = dg.SensorResult(asset_events=[dg.AssetMaterialization("a")], cursor="lost")
    bad = asks(fails, fails, name="bad")
    loud = asks(reports, name="loud")
    good = asks(dg.RunRequest(run_key="y"))
    schedules = [takes(name, name=name) for name in ("bad", "loud", "files")]
    definitions = lake([bad, loud, good], *schedules)
    (made,) = place.tick(definitions).run_requests or ()
    assert made.tags["arctic/schedule"] == "files"
    place.tick(definitions)
    assert seen == [None, None]
    rows = {name: rest for name, *rest in place.rows(sources, "name", "cursor", "tick", "note")}
    assert rows["bad"] == [None, 0, "its sensor failed: OSError('no network')"]
    assert rows["loud"][:1] == [None]
    assert place.rows(source_requests, "run_key") == [("y",)]


def test_a_sensor_that_takes_long_holds_up_no_tick(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests are taken by a later tick, once; it is not evaluated twice meanwhile."""
    monkeypatch.setattr(dagster_sources, "TICK_SECONDS", 0.05)
    goes_on, calls = threading.Event(), []

    def slow(context: dg.SensorEvaluationContext) -> dg.RunRequest:
        calls.append(context.cursor)
        assert goes_on.wait(PATIENCE_SECONDS)
        return dg.RunRequest(run_key="z")

    definitions = lake([asks(slow)], takes("files"))
    assert not place.tick(definitions).run_requests
    # A later tick would wait for ever.
    monkeypatch.setattr(dagster_sources, "TICK_SECONDS", 1e6)
    assert not place.tick(definitions).run_requests
    goes_on.set()
    requested: list[dg.RunRequest] = []

    def has_requested() -> bool:
        requested.extend(place.tick(definitions).run_requests or ())
        return bool(requested)

    until(has_requested, "its request is taken")
    assert [request.run_key is not None for request in requested] == [True]
    assert calls == [None]


def test_a_source_is_evaluated_at_its_interval_and_while_it_is_wanted(place: Place) -> None:
    """Not again within its interval, and not for a suspended schedule."""
    calls: list[str] = []

    def counts(name: str) -> Callable[[dg.SensorEvaluationContext], None]:
        return lambda context: calls.append(name)

    often = asks(*[counts("often")] * 3, name="often", minimum_interval_seconds=1000)
    unwanted = asks(counts("unwanted"), name="unwanted")
    suspended = Schedule(name="t", target=work, trigger=on.requests(unwanted))
    definitions = lake([often, unwanted], takes("often"), suspended)
    place.tick(definitions)
    place.tick(definitions)
    assert calls == ["often"]
    early = sa.update(sources).values(evaluated_at=sources.c.evaluated_at)
    with place.database.begin() as tx:
        (at,) = tx.execute(sa.select(sources.c.evaluated_at)).scalars()
        tx.execute(early.values(evaluated_at=at - timedelta(seconds=1000)))
    place.tick(definitions)
    assert calls == ["often", "often"]


class Store(dg.ConfigurableResource[Any]):
    files: list[str]


def test_a_source_gets_its_resources_and_what_else_a_context_has(place: Place) -> None:
    """As from Dagster: resources, instance, repository, log."""

    @dg.sensor(job=work, minimum_interval_seconds=0)
    def files(context: dg.SensorEvaluationContext, store: Store) -> dg.SensorResult:
        context.log.info("evaluating")
        assert context.repository_def is not None
        assert context.repository_def.has_job("work")
        assert context.instance.get_runs_count() == 0
        return dg.SensorResult([dg.RunRequest(run_key=key) for key in store.files], cursor="1")

    resources = {"store": Store(files=["x", "y"])}
    definitions = lake([files], takes("files"), resources=resources)
    assert len(place.tick(definitions).run_requests or ()) == 2


@dg.asset_sensor(asset_key=dg.AssetKey("a"), job=work)
def of_asset(context: Any, asset_event: Any) -> None: ...


@dg.multi_asset_sensor(monitored_assets=[dg.AssetKey("a")], job=work)
def of_assets(context: Any) -> None: ...


@dg.run_status_sensor(run_status=dg.DagsterRunStatus.SUCCESS)
def of_runs(context: Any) -> None: ...


@pytest.mark.parametrize("sensor", [of_asset, of_assets, of_runs, "files", None])
def test_only_plain_sensors_are_sources(sensor: Any) -> None:
    """The other kinds have triggers of their own."""
    with pytest.raises(InvalidDefinition, match=r"sources\[0\].*expected a plain @sensor"):
        Arctic(sources=[sensor])


def test_bad_declarations_name_field_and_value() -> None:
    """Twice the same, an unknown sensor, a part of a trigger, partitions of the schedule."""
    with pytest.raises(InvalidDefinition, match=r"sources\[1\].*a name used once"):
        Arctic(sources=[asks(), asks()])
    with pytest.raises(InvalidDefinition, match=r"requests\.sensor.*'fils'.*files"):
        Arctic(sources=[asks()], schedules=[takes("fils")])
    with pytest.raises(InvalidDefinition, match=r"any_of\[0\].*as the whole trigger"):
        Schedule(name="s", target=work, trigger=on.requests("f") | on.cron("0 4 * * *"))
    with pytest.raises(InvalidDefinition, match=r"partitions.*names its partition itself"):
        takes("files", daily, partitions="each")
