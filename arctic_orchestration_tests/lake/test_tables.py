"""Finding tables in the catalog, and a catalog that does not answer."""

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ServiceUnavailableError
from sqlalchemy.exc import OperationalError

from arctic_orchestration.errors import CatalogUnavailable, LakeError, NotFound
from arctic_orchestration.lake import catalog_answers, ensure_table, tables
from arctic_orchestration.lake.table_listing import list_tables, metadata_locations
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration_tests.lake.reference_merge import SCHEMA, add


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waits of these modules are noted, not waited; those of other threads are left alone."""
    waits: list[float] = []
    for module in (catalog_answers, tables):
        monkeypatch.setattr(module, "sleep", waits.append)
    return waits


def test_an_unknown_table_is_answered_with_those_that_exist(catalog: Catalog) -> None:
    """In all namespaces, nested ones too."""
    ensure_table(catalog, "lake.flights", SCHEMA)
    ensure_table(catalog, "lake.deep.weather", SCHEMA)
    assert list_tables(catalog) == ["lake.deep.weather", "lake.flights"]
    assert load_table(catalog, "lake.flights").name() == ("lake", "flights")
    message = (
        "table 'lake.flight' is not in catalog lake; there are lake.deep.weather, lake.flights"
    )
    with pytest.raises(NotFound, match=f"^{message}$"):
        load_table(catalog, "lake.flight")


def test_a_table_with_a_dot_in_its_name_is_left_out(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    """Its identifier is that of another table, in a deeper namespace; it is warned of once."""
    ensure_table(catalog, "lake.flights", SCHEMA)
    ensure_table(catalog, "lake.deep.weather", SCHEMA)
    catalog.create_table(("lake", "deep.weather"), SCHEMA)
    catalog.create_table(("lake", "deep.rain"), SCHEMA)
    weather = load_table(catalog, "lake.deep.weather")
    for _ in range(2):
        assert list_tables(catalog) == ["lake.deep.weather", "lake.flights"]
    locations = metadata_locations(catalog)
    assert locations is not None
    assert locations.keys() == {"lake.deep.weather", "lake.flights"}
    assert locations["lake.deep.weather"] == weather.metadata_location
    assert sorted(one.getMessage() for one in caplog.records) == [
        f"the table ('lake', 'deep.{name}') is left out: expected names without dots"
        for name in ("rain", "weather")
    ]


@pytest.mark.parametrize("odd", ["a\0b", "a\ud800b"])
def test_a_table_whose_name_no_database_can_hold_is_left_out(
    catalog: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    odd: str,
) -> None:
    """Of other catalogs, whose answers are JSON; those beside it are planned."""
    ensure_table(catalog, "lake.flights", SCHEMA)
    listed = [("lake", "flights"), ("lake", odd)]
    monkeypatch.setattr(catalog, "list_tables", lambda _: listed)
    assert list_tables(catalog) == ["lake.flights"]
    expected = f"the table {listed[1]!r} is left out: expected names that a database can hold"
    assert caplog.messages == [expected]


@pytest.mark.parametrize("name", ["flights", "no.such.namespace", "", ".", " ", "a..b"])
def test_a_name_that_cannot_be_one_is_not_found(catalog: Catalog, name: str) -> None:
    """Nothing but the error of the project, whatever was typed."""
    with pytest.raises(NotFound, match="the catalog has no tables"):
        load_table(catalog, name)


def test_many_tables_are_not_all_shown(catalog: Catalog) -> None:
    """Twenty names, and that there are more."""
    for number in range(22):
        ensure_table(catalog, f"lake.t{number:02}", SCHEMA)
    with pytest.raises(NotFound, match=r"lake\.t19, \.\.\.$"):
        load_table(catalog, "lake.none")


@pytest.mark.parametrize(
    "failure",
    [
        OperationalError("select", {}, Exception("connection refused")),
        ConnectionError("connection refused"),
        ServiceUnavailableError("try later"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_catalog_that_is_down_is_retried(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, no_waiting: list[float], failure: Exception
) -> None:
    """Down twice: the third answer is taken. Always down: said after five times."""
    ensure_table(catalog, "lake.flights", SCHEMA)
    load, left = catalog.load_table, [failure, failure]

    def down(identifier: str) -> object:
        if left:
            raise left.pop()
        return load(identifier)

    monkeypatch.setattr(catalog, "load_table", down)
    assert load_table(catalog, "lake.flights").name() == ("lake", "flights")
    assert no_waiting == [0.2, 0.4]
    left.extend([failure] * 5)
    expected = "lake.flights: the catalog did not answer, tried 5 times: .*"
    with pytest.raises(CatalogUnavailable, match=expected):
        load_table(catalog, "lake.flights")
    assert no_waiting == [0.2, 0.4, 0.2, 0.4, 0.8, 1.6]


def test_a_lost_metadata_file_is_not_a_catalog_that_is_down(
    catalog: Catalog, no_waiting: list[float]
) -> None:
    """Asking again would not bring it back."""
    table = ensure_table(catalog, "lake.flights", SCHEMA)
    add(table, (1, "JFK"))
    Path(table.metadata_location).unlink()
    with pytest.raises(LakeError, match=r"lake\.flights: its metadata cannot be read"):
        load_table(catalog, "lake.flights")
    assert no_waiting == []
    assert list_tables(catalog) == ["lake.flights"]
