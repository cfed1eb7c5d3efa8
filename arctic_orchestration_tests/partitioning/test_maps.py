"""Which target partitions the keys of an asset belong to, by tables."""

from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.partitioning.maps import DimensionMap, PartitionMap, check
from arctic_orchestration.partitioning.time_windows import TimeWindowRelation

BERLIN = "Europe/Berlin"
HOURLY = dg.HourlyPartitionsDefinition(start_date="2026-01-05-00:00")
DAILY = dg.DailyPartitionsDefinition(start_date="2026-01-05")
WEEKLY = dg.WeeklyPartitionsDefinition(start_date="2026-01-04")
MONTHLY = dg.MonthlyPartitionsDefinition(start_date="2026-01-01")
AT_TWO = dg.DailyPartitionsDefinition(start_date="2026-01-05", hour_offset=2)
BERLIN_HOURS = dg.HourlyPartitionsDefinition(start_date="2026-01-05-00:00", timezone=BERLIN)
BERLIN_DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-05", timezone=BERLIN)
REGIONS = dg.StaticPartitionsDefinition(["emea", "amer", "apac"])
ZONES = dg.StaticPartitionsDefinition(["eu", "us"])
DATE_REGION = dg.MultiPartitionsDefinition({"date": DAILY, "region": REGIONS})
FILES = dg.DynamicPartitionsDefinition(name="files")
ENDED = dg.DailyPartitionsDefinition(start_date="2026-01-05", end_date="2026-01-08")
NOON = datetime(2026, 1, 7, 12, tzinfo=UTC)

TWO_DAYS = dg.TimeWindowPartitionMapping(start_offset=-1)
REGION_TO_ZONE = dg.StaticPartitionMapping({"emea": "eu", "amer": ["us"]})
BY_DAY = dg.MultiPartitionMapping(
    {"date": dg.DimensionPartitionMapping("date", dg.IdentityPartitionMapping())}
)


@pytest.mark.parametrize(
    ("upstream", "target", "mapping", "key", "targets"),
    [
        (HOURLY, DAILY, None, "2026-01-05-03:00", ("2026-01-05",)),
        (HOURLY, DAILY, None, "2026-01-05-23:00", ("2026-01-05",)),
        # A day that has not ended, and one of which Dagster has no partition for years.
        (HOURLY, DAILY, None, "2036-01-05-03:00", ("2036-01-05",)),
        (HOURLY, DAILY, TWO_DAYS, "2026-01-05-03:00", ("2026-01-05", "2026-01-06")),
        (HOURLY, AT_TWO, None, "2026-01-06-01:00", ("2026-01-05",)),
        (HOURLY, AT_TWO, None, "2026-01-05-01:00", ()),
        (HOURLY, ENDED, None, "2026-01-07-23:00", ("2026-01-07",)),
        (HOURLY, ENDED, None, "2026-01-08-00:00", ()),
        (DAILY, HOURLY, None, "2026-01-05", tuple(f"2026-01-05-{h:02}:00" for h in range(24))),
        (DAILY, WEEKLY, None, "2026-01-10", ("2026-01-04",)),
        (DAILY, WEEKLY, None, "2026-01-11", ("2026-01-11",)),
        (WEEKLY, MONTHLY, None, "2026-01-25", ("2026-01-01",)),
        (WEEKLY, MONTHLY, None, "2026-02-22", ("2026-02-01",)),
        (WEEKLY, MONTHLY, None, "2026-03-29", ("2026-03-01", "2026-04-01")),
        (DAILY, DAILY, None, "2026-01-05", ("2026-01-05",)),
        (DAILY, DAILY, TWO_DAYS, "2026-01-05", ("2026-01-05", "2026-01-06")),
        (DAILY, ENDED, dg.IdentityPartitionMapping(), "2026-01-08", ()),
        # The night of the clock change has the hour 02:00 twice, or not at all.
        (BERLIN_HOURS, BERLIN_DAYS, None, "2026-10-25-02:00", ("2026-10-25",)),
        (BERLIN_HOURS, BERLIN_DAYS, None, "2026-10-25-02:00+0100", ("2026-10-25",)),
        (BERLIN_HOURS, BERLIN_DAYS, None, "2026-10-26-00:00", ("2026-10-26",)),
        (REGIONS, REGIONS, None, "emea", ("emea",)),
        (REGIONS, ZONES, REGION_TO_ZONE, "amer", ("us",)),
        (REGIONS, ZONES, REGION_TO_ZONE, "apac", ()),
        (DATE_REGION, DATE_REGION, None, "2026-01-05|emea", ("2026-01-05|emea",)),
        (DATE_REGION, DAILY, None, "2026-01-05|emea", ("2026-01-05",)),
        (DATE_REGION, REGIONS, None, "2026-01-05|emea", ("emea",)),
        (DATE_REGION, WEEKLY, None, "2026-01-12|apac", ("2026-01-11",)),
        (
            DATE_REGION,
            DATE_REGION,
            BY_DAY,
            "2026-01-05|emea",
            ("2026-01-05|emea", "2026-01-05|amer", "2026-01-05|apac"),
        ),
        (
            DAILY,
            DATE_REGION,
            None,
            "2026-01-05",
            ("2026-01-05|emea", "2026-01-05|amer", "2026-01-05|apac"),
        ),
        (REGIONS, DATE_REGION, None, "emea", ("2026-01-05|emea", "2026-01-06|emea")),
        (FILES, FILES, None, "a.csv", ("a.csv",)),
        (FILES, REGIONS, dg.AllPartitionMapping(), "a.csv", ("emea", "amer", "apac")),
        (DAILY, REGIONS, dg.LastPartitionMapping(), "2026-01-06", ("emea", "amer", "apac")),
        (DAILY, REGIONS, dg.LastPartitionMapping(), "2026-01-05", ()),
        (REGIONS, ZONES, dg.SpecificPartitionsPartitionMapping(["emea"]), "emea", ("eu", "us")),
        (REGIONS, ZONES, dg.SpecificPartitionsPartitionMapping(["emea"]), "amer", ()),
        (None, DAILY, None, "2026-01-05", ("2026-01-05",)),
        (None, DAILY, None, "raw.csv", ()),
    ],
)
def test_targets(
    upstream: Any, target: Any, mapping: Any, key: str, targets: tuple[str, ...]
) -> None:
    assert PartitionMap(upstream, target, mapping).targets_of([key], at=NOON) == {key: targets}


@pytest.mark.parametrize(
    ("upstream", "target", "mapping", "key", "sources"),
    [
        (HOURLY, DAILY, None, "2036-01-05", tuple(f"2036-01-05-{h:02}:00" for h in range(24))),
        (HOURLY, DAILY, None, "2026-01-04", ()),
        (DAILY, DAILY, TWO_DAYS, "2026-01-05", ("2026-01-05",)),
        (DAILY, DAILY, TWO_DAYS, "2026-01-06", ("2026-01-05", "2026-01-06")),
        (
            DATE_REGION,
            DAILY,
            None,
            "2036-01-05",
            tuple(f"2036-01-05|{r}" for r in ("emea", "amer", "apac")),
        ),
        (DATE_REGION, REGIONS, None, "amer", ("2026-01-05|amer", "2026-01-06|amer")),
        (DATE_REGION, REGIONS, None, "anta", ()),
        (REGIONS, ZONES, REGION_TO_ZONE, "eu", ("emea",)),
        (DAILY, REGIONS, dg.AllPartitionMapping(), "emea", ("2026-01-05", "2026-01-06")),
        (DAILY, REGIONS, dg.LastPartitionMapping(), "emea", ("2026-01-06",)),
        (FILES, REGIONS, dg.AllPartitionMapping(), "emea", ("a", "b")),
        (None, DAILY, None, "2026-01-05", ("2026-01-05",)),
    ],
)
def test_sources(
    upstream: Any, target: Any, mapping: Any, key: str, sources: tuple[str, ...]
) -> None:
    partition_map = PartitionMap(upstream, target, mapping, lambda name: ["a", "b"])
    assert partition_map.sources_of(key, at=NOON) == sources


@pytest.mark.parametrize("day", [("2026-03-29", 23), ("2026-10-25", 25)])
def test_a_day_on_which_clocks_change_has_23_or_25_hours(day: tuple[str, int]) -> None:
    key, hours = day
    partition_map = PartitionMap(BERLIN_HOURS, BERLIN_DAYS)
    sources = partition_map.sources_of(key)
    assert len(sources) == hours
    assert partition_map.targets_of(sources) == dict.fromkeys(sources, (key,))


@pytest.mark.parametrize(
    ("upstream", "key"),
    [
        (HOURLY, "2026-01-05"),
        (HOURLY, "2026-01-05-03:30"),
        (HOURLY, "2026-01-04-23:00"),
        (HOURLY, "2026-1-5-3:00"),
        (HOURLY, ""),
        (BERLIN_HOURS, "2026-03-29-02:00"),
        (DAILY, "2026-02-30"),
        (DAILY, "9999-12-31"),
        (WEEKLY, "2026-01-05"),
        (ENDED, "2026-01-08"),
        (REGIONS, "anta"),
        (DATE_REGION, "2026-01-05"),
        (DATE_REGION, "2026-01-05|anta"),
        (DATE_REGION, "emea|2026-01-05"),
        (DATE_REGION, "2026-01-05|emea|x"),
        (FILES, ""),
    ],
)
def test_a_text_that_is_no_partition_of_the_asset_is_left_out(upstream: Any, key: str) -> None:
    """Beside keys that are, which keep their targets."""
    partition_map = PartitionMap(upstream, upstream)
    assert partition_map.targets_of([key]) == {}
    assert PartitionMap(upstream, REGIONS, dg.AllPartitionMapping()).targets_of([key]) == {}


def test_keys_of_many_days_are_mapped_at_once_like_each_alone() -> None:
    """Dense and lone keys, texts that are none, those before the target begins."""
    late = dg.DailyPartitionsDefinition(start_date="2026-01-07")
    hours = [f"2026-01-{day:02}-{hour:02}:00" for day in range(5, 12) for hour in range(0, 24, 5)]
    keys = [*hours, "2027-07-01-12:00", "2026-01-05", "2026-01-05-03:30"]
    answers = PartitionMap(HOURLY, late, TWO_DAYS).targets_of(keys)
    each = PartitionMap(HOURLY, late, TWO_DAYS)
    assert answers == {key: names for k in keys for key, names in each.targets_of([k]).items()}
    assert answers["2026-01-06-20:00"] == ("2026-01-07",)
    assert answers["2026-01-05-00:00"] == ()
    assert len(answers) == len(hours) + 1


def test_keys_outside_of_the_target_map_to_nothing() -> None:
    """Before it begins and after it has ended; Dagster is asked a few times, not for each."""
    hours = [f"2026-01-{day:02}-{hour:02}:00" for day in range(5, 12) for hour in range(24)]
    target = dg.DailyPartitionsDefinition(start_date="2026-01-08", end_date="2026-01-09")
    calls = 0

    class Counted(dg.TimeWindowPartitionMapping):
        def get_downstream_partitions_for_partitions(self, *given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            return super().get_downstream_partitions_for_partitions(*given, **named)

    found = TimeWindowRelation(HOURLY, target, Counted()).targets_of(set(hours))
    day = [key for key in hours if key.startswith("2026-01-08")]
    assert found == {key: ("2026-01-08",) if key in day else () for key in hours}
    assert calls < 100


def test_an_instance_lists_the_dynamic_keys() -> None:
    """Keys that were not added yet have targets, too; all of them are those that were."""
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("files", ["a", "b"])
        every = PartitionMap(FILES, FILES, dg.AllPartitionMapping(), instance)
        assert every.targets_of(["new"]) == {"new": ("a", "b")}
        assert PartitionMap(FILES, FILES, None, instance).targets_of(["new"]) == {"new": ("new",)}
        instance.add_dynamic_partitions("files", ["c"])
        assert every.sources_of("a") == ("a", "b", "c")


class _NextDay(dg.IdentityPartitionMapping):
    """A custom mapping: the day after."""

    def get_downstream_partitions_for_partitions(
        self, subset: Any, up: Any, down: Any, *_: Any
    ) -> Any:
        ends = [up.time_window_for_partition_key(key).end for key in subset.get_partition_keys()]
        return down.subset_with_partition_keys([f"{end:%Y-%m-%d}" for end in ends])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_custom_mapping_maps_to_days_that_have_not_ended() -> None:
    partition_map = PartitionMap(DAILY, DAILY, _NextDay())
    assert partition_map.targets_of(["2026-01-07"], at=NOON) == {"2026-01-07": ("2026-01-08",)}


def test_a_dimension_groups_the_keys_of_an_asset() -> None:
    """For a target without partitions the keys of the dimension are the groups."""
    by_date = DimensionMap(DATE_REGION, "date")
    assert by_date.targets_of(["2036-01-05|emea", "2026-01-05", "2026-01-05|x"]) == {
        "2036-01-05|emea": ("2036-01-05",)
    }
    assert by_date.sources_of("2036-01-05") == tuple(
        f"2036-01-05|{region}" for region in ("emea", "amer", "apac")
    )
    assert by_date.sources_of("emea") == ()
    by_region = DimensionMap(DATE_REGION, "region")
    assert by_region.sources_of("apac", at=NOON) == ("2026-01-05|apac", "2026-01-06|apac")


def test_hours_of_a_day_that_is_excluded_belong_to_no_day() -> None:
    """Dagster takes them for the day before, which does not count them."""
    weekdays = dg.TimeWindowPartitionsDefinition(
        start="2026-01-05", cron_schedule="0 0 * * *", fmt="%Y-%m-%d", exclusions=["0 0 * * 6,0"]
    )
    partition_map = PartitionMap(HOURLY, weekdays)
    friday, saturday, monday = "2026-01-09-23:00", "2026-01-10-04:00", "2026-01-12-00:00"
    assert partition_map.targets_of([friday, saturday, monday], at=NOON) == {
        friday: ("2026-01-09",),
        saturday: (),
        monday: ("2026-01-12",),
    }
    assert partition_map.sources_of("2026-01-09", at=NOON)[-1] == friday


def test_an_unknown_dimension_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"per: got 'day', expected one .* date, region"):
        DimensionMap(DATE_REGION, "day")


@pytest.mark.parametrize(
    ("upstream", "target", "mapping", "names"),
    [
        (REGIONS, DAILY, None, ("emea, amer, apac", "daily partitions from 2026-01-05")),
        (HOURLY, BERLIN_DAYS, None, ("hourly partitions", "(Europe/Berlin)", "Timezones")),
        (REGIONS, ZONES, None, ("emea", "eu, us", "no key in common")),
        (REGIONS, ZONES, dg.StaticPartitionMapping({"x": "eu"}), ("emea", "eu, us", "{'x'}")),
        (REGIONS, ZONES, dg.StaticPartitionMapping({"emea": "x"}), ("emea", "eu, us", "{'x'}")),
        (DAILY, REGIONS, TWO_DAYS, ("daily", "emea", "TimeWindow")),
        (REGIONS, DATE_REGION, BY_DAY, ("emea", "by date (daily", "multi-partitioned")),
        (FILES, DAILY, None, ("dynamic partitions files", "daily")),
        (DAILY, ZONES, dg.MultiToSingleDimensionPartitionMapping("x"), ("daily", "eu, us")),
        (
            ENDED,
            dg.DailyPartitionsDefinition(start_date="2026-02-01"),
            None,
            ("to 2026-01-08", "from 2026-02-01", "nothing in common"),
        ),
        (
            DATE_REGION,
            dg.MultiPartitionsDefinition({"date": DAILY, "zone": ZONES}),
            None,
            ("region", "zone", "no key in common"),
        ),
        (REGIONS, ZONES, dg.SpecificPartitionsPartitionMapping(["x"]), ("emea", "eu", "'x'")),
        (
            DATE_REGION,
            DATE_REGION,
            dg.MultiPartitionMapping({"date": dg.DimensionPartitionMapping("region", TWO_DAYS)}),
            ("date onto region", "by date", "TimeWindow"),
        ),
        (DATE_REGION, BERLIN_DAYS, None, ("date onto the keys", BERLIN)),
        (BERLIN_DAYS, DATE_REGION, None, ("the keys onto date", BERLIN)),
    ],
)
def test_a_mapping_that_cannot_work_is_refused_with_both_definitions(
    upstream: Any, target: Any, mapping: Any, names: tuple[str, ...]
) -> None:
    text = check(upstream, target, mapping)
    assert text is not None
    assert " cannot be mapped onto " in text
    for name in names:
        assert name in text


@pytest.mark.parametrize(
    ("upstream", "target", "mapping"),
    [
        (HOURLY, DAILY, None),
        (DAILY, DAILY, TWO_DAYS),
        (DATE_REGION, DAILY, None),
        (DAILY, DATE_REGION, None),
        (DATE_REGION, MONTHLY, None),
        (DATE_REGION, REGIONS, dg.MultiToSingleDimensionPartitionMapping("region")),
        (DATE_REGION, DATE_REGION, BY_DAY),
        (REGIONS, ZONES, REGION_TO_ZONE),
        (FILES, FILES, None),
        (DAILY, ZONES, dg.AllPartitionMapping()),
    ],
)
def test_a_mapping_that_works_is_not_refused(upstream: Any, target: Any, mapping: Any) -> None:
    assert check(upstream, target, mapping) is None
