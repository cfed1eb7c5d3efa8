"""``arctic partitions add``: announces a partition through Dagster's own event log."""

import json
from collections.abc import Callable, Iterator

import dagster as dg
import pytest

from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.event_log.event import EventKind
from arctic_orchestration.schedules.inventory import Inventory, Partitioning
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.schedules.simulated import World


def test_an_announcement_is_seen_by_the_feed(
    instance: dg.DagsterInstance, arctic: Callable[..., Outcome]
) -> None:
    """With its path, bytes, rows and more; everything but the first two is optional."""
    log = DagsterLog(instance)
    before = log.end()
    result = arctic(
        "partitions", "add", "raw/flights", "2026-01-01|EWR", "--path", "/in/a b.csv",
        "--bytes", "1048576", "--rows", "305", "--metadata", "source=ftp",
        "--metadata", "checked=true", "--metadata", "share=0.5", "--metadata", "note=a=b",
        "--metadata", "mean=NaN",
    )  # fmt: skip
    assert (result.code, result.out) == (0, "announced raw/flights 2026-01-01|EWR\n")
    plain = arctic("partitions", "add", "plain", "1", "--json")
    assert json.loads(plain.out) == {"asset": "plain", "partition": "1"}
    first, second = log.read(before, 10).events
    assert (first.kind, first.subject, first.partition) == (
        EventKind.PARTITION,
        "raw/flights",
        "2026-01-01|EWR",
    )
    assert (first.bytes, first.rows, first.run_id) == (1048576, 305, None)
    assert dict(first.metadata) == {
        "path": "/in/a b.csv",
        "bytes": 1048576,
        "rows": 305,
        "source": "ftp",
        "checked": True,
        "share": 0.5,
        "note": "a=b",
        "mean": "NaN",
    }
    assert (second.subject, second.partition, second.bytes) == ("plain", "1", None)
    log.close()


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("raw//flights", "1"), "ASSET: got 'raw//flights', expected an asset key such as"),
        (("/raw", "1"), "ASSET: got '/raw', expected an asset key such as raw/flights"),
        (("", "1"), "ASSET: got '', expected an asset key such as raw/flights"),
        (("a", ""), "KEY: got '', expected a partition key"),
        (("a", "1", "--bytes", "-5"), "--bytes: got '-5', expected a whole number from 0 to"),
        (("a", "1", "--rows", "1.5"), "--rows: got '1.5', expected a whole number from 0 to"),
        (("a", "1", "--metadata", "x"), "--metadata: got 'x', expected key=value"),
        (("a", "1", "--metadata", "=x"), "--metadata: got '=x', expected key=value"),
        (("a", "1", "--metadata", "[/]"), "--metadata: got '[/]', expected key=value"),
        (
            ("a", "1", "--metadata", 'x={"b": {"__enum__": "C.d"}}'),
            "expected keys that Dagster does not use itself, unlike __enum__",
        ),
        (("a", "1", "--metadata", "rows=5"), "got 'rows=5', expected another key: use --rows"),
        (("a", "1", "--bytes", "5MB"), "--bytes: got '5MB', expected a whole number from 0 to"),
        (
            ("a", "1", "--path", "/data/caf\udce9.csv"),
            "--path: got '/data/caf\\udce9.csv', expected",
        ),
        (("a", "1", "--path", "a\0b"), "--path: got 'a\\x00b', expected text in UTF-8 without NUL"),
        (("caf\udce9", "1"), "ASSET: got 'caf\\udce9', expected text in UTF-8 without NUL"),
        (("a", "k" * 256, "--force"), "kk', expected text of at most 255 characters"),
        (("a" * 256, "k", "--force"), "ASSET: got 'aa"),
        (("a", "x\udce9"), "KEY: got 'x\\udce9', expected text in UTF-8 without NUL"),
        (("a", "1", "--metadata", "x=\udce9"), "--metadata: got 'x=\\udce9', expected text in"),
        (("a", "1", "--metadata", "\udce9=1"), "--metadata: got '\\udce9=1', expected text in"),
        (
            ("a", "1", "--metadata", 'x=["\\ud83d"]'),
            "--metadata x: got '[\"\\\\ud83d\"]', expected",
        ),
        (("a", "1", "--metadata", 'x="\\u0000"'), "expected text without NUL and halves"),
        (("a", "1", "--metadata", "x=1e999"), "and finite numbers"),
        (
            ("a", "1", "--metadata", "x=" + "[" * 101 + "]" * 101),
            "expected JSON nested at most 100",
        ),
        (("a", "1", "--metadata", "x=" + "[" * 5000 + "]" * 5000), "JSON nested at most 100 deep"),
        (("a",), "Missing argument 'KEY'"),
    ],
)
def test_bad_input_is_one_message_and_announces_nothing(
    instance: dg.DagsterInstance,
    arctic: Callable[..., Outcome],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    """Exit code 2; the message names the field, the value and what was expected."""
    result = arctic("partitions", "add", *arguments)
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err
    log = DagsterLog(instance)
    assert list(log.read(None, 10).events) == []
    log.close()


def test_without_an_instance_the_message_says_what_to_set(
    arctic: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DAGSTER_HOME names it."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    result = arctic("partitions", "add", "a", "1")
    assert result.code == 2
    assert "DAGSTER_HOME" in result.err
    assert "Traceback" not in result.err


_DAILY = {"daily": {"start": "2026-01-01", "timezone": "Europe/Berlin"}}
_REGION = {"static": ["north", "south"]}
_FILES = {"dynamic": "files"}


@pytest.fixture
def known(
    instance: dg.DagsterInstance, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    """A location whose code has two partitioned assets and one whose keys come as they come."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    database = Database(database_url)
    waiting = Schedule(name="s", target="j", trigger=on.partitions("from/outside"))
    here = World(database, [waiting])
    assets = {
        "raw/flights": Partitioning(format="%Y-%m-%d"),
        "region": Partitioning(keys=("north", "south")),
        "feeds": None,
        "days": Partitioning(format="%Y-%m-%d", form=json.dumps(_DAILY)),
        "both": Partitioning(form=json.dumps({"multi": {"date": _DAILY, "region": _REGION}})),
        "files": Partitioning(form=json.dumps({"multi": {"date": _DAILY, "file": _FILES}})),
    }
    here.engine.inventory = Inventory(assets=assets)
    here.tick(0)
    yield here
    database.close()


@pytest.mark.parametrize(
    ("asset", "key", "message"),
    [
        (
            "raw/fligths",
            "2026-01-01",
            "ASSET: got 'raw/fligths', expected an asset of a code location; did you mean "
            "raw/flights? (to announce it all the same: --force)",
        ),
        (
            "raw/flights",
            "2026-01-32",
            "KEY: got '2026-01-32', expected a moment written as %Y-%m-%d "
            "(to announce it all the same: --force)",
        ),
        (
            "region",
            "nroth",
            "KEY: got 'nroth', expected one of its partitions; did you mean north or south? "
            "(to announce it all the same: --force)",
        ),
        (
            "days",
            "2025-12-31",
            "KEY: got '2025-12-31', expected one of its partitions (daily partitions from "
            "2026-01-01 (Europe/Berlin)); did you mean 2026-01-01? (to announce it",
        ),
        (
            "both",
            "2026-01-05|nroth",
            "expected one of its partitions (partitions by date (daily partitions from 2026-01-01 "
            "(Europe/Berlin)) and region (the partitions north, south)); did you mean "
            "2026-01-05|north? (to announce it",
        ),
        ("both", "2026-01-05", "got '2026-01-05', expected one of its partitions (partitions by"),
        ("files", "2025-01-05|x", "; did you mean 2026-01-01|x? (to announce it"),
    ],
)
def test_a_typo_is_refused_unless_it_is_meant(
    known: World, instance: dg.DagsterInstance, arctic: Callable[..., Outcome],
    asset: str, key: str, message: str,
) -> None:  # fmt: skip
    """It would make an asset, or a partition, that nothing waits for, with a green tick."""
    log = DagsterLog(instance)
    before = log.end()
    refused = arctic("partitions", "add", asset, key)
    assert refused.code == 2
    assert message in refused.err
    assert log.read(before, 10).events == []
    assert arctic("partitions", "add", asset, key, "--force").code == 0
    assert [event.subject for event in log.read(before, 10).events] == [asset]
    log.close()


@pytest.mark.parametrize(
    ("asset", "key"),
    [
        ("raw/flights", "2026-01-31"),
        ("region", "south"),
        ("days", "2126-01-31"),
        ("both", "2026-01-05|south"),
        ("files", "2026-01-05|any"),
    ],
)
def test_what_is_known_or_waited_for_is_announced(
    known: World, arctic: Callable[..., Outcome], asset: str, key: str
) -> None:
    """Also a partition of a later day."""
    result = arctic("partitions", "add", asset, key)
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize(
    ("asset", "why"),
    [
        ("feeds", "the partitions of feeds are dynamic in the code, or it has none"),
        ("from/outside", "no code location declares the partitions of from/outside"),
    ],
)
def test_a_key_that_nothing_can_check_is_announced_with_a_warning(
    known: World, arctic: Callable[..., Outcome], asset: str, why: str
) -> None:
    """Of dynamic partitions, and of an asset that no code defines and a schedule waits for."""
    result = arctic("partitions", "add", asset, "any")
    assert (result.code, result.out) == (0, f"announced {asset} any\n")
    assert result.err == f"not checked: {why}\n"
    assert arctic("partitions", "add", asset, "any", "--force").err == ""


def test_where_nothing_is_known_nothing_is_refused(
    instance: dg.DagsterInstance, arctic: Callable[..., Outcome], database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """And it says so."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    result = arctic("partitions", "add", "raw/fligths", "1")
    assert (result.code, result.out) == (0, "announced raw/fligths 1\n")
    assert result.err == (
        "not checked: no code location of cluster default has ticked with this version\n"
    )
    monkeypatch.setenv("ARCTIC_DATABASE_URL", "sqlite:////tmp/there/is/none.db")
    result = arctic("partitions", "add", "raw/fligths", "1", "--json")
    assert (result.code, result.err) == (0, "")
