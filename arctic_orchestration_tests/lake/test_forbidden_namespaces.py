"""Namespaces of a catalog that cannot be listed."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import BadRequestError, ForbiddenError, NoSuchNamespaceError
from pyiceberg.schema import Schema

from arctic_orchestration.errors import CatalogUnavailable
from arctic_orchestration.lake import catalog_answers
from arctic_orchestration.lake.table_listing import list_catalog, list_tables


def test_tables_beside_a_namespace_that_may_not_be_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a REST catalog with rights for each namespace answers; it is reported once."""

    class Guarded(SqlCatalog):
        def list_tables(self, namespace: Any) -> Any:
            if "secret" in namespace:
                raise ForbiddenError("not yours")
            return super().list_tables(namespace)

    catalog = Guarded("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    for namespace in ("open", "secret"):
        catalog.create_namespace(namespace)
        catalog.create_table(f"{namespace}.words", Schema())
    assert list_tables(catalog) == list_tables(catalog) == ["open.words"]
    (text,) = caplog.messages
    assert text == "the tables of secret are left out: the catalog refuses to list them"


@pytest.mark.parametrize(
    ("error", "broken", "is_down"),
    [
        (BadRequestError("cannot list"), 4, False),
        (ConnectionError("cannot list"), 2, False),
        (ConnectionError("cannot list"), 7, False),
        (ConnectionError("cannot list"), 3, True),
    ],
)
def test_tables_beside_namespaces_that_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, broken: int, is_down: bool
) -> None:
    """With the reason; after three in a row without an answer, the catalog itself is asked."""
    monkeypatch.setattr(catalog_answers, "_FIRST_WAIT_SECONDS", 0)

    class Broken(SqlCatalog):
        def list_tables(self, namespace: Any) -> Any:
            if namespace[0].startswith("broken"):
                asked.append(namespace)
                raise error
            return super().list_tables(namespace)

        def list_namespaces(self, namespace: Any = ()) -> Any:
            if is_down and asked:
                raise error
            return super().list_namespaces(namespace)

    asked: list[Any] = []
    catalog = Broken("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    names = [f"broken{number}" for number in range(broken)]
    # Between the others, one that answers would count anew.
    for namespace in names if is_down else ("fine", *names):
        catalog.create_namespace(namespace)
        catalog.create_table(f"{namespace}.words", Schema())
    if is_down:
        with pytest.raises(CatalogUnavailable):
            list_catalog(catalog)
        return
    listing = list_catalog(catalog)
    assert listing.names == ["fine.words"]
    assert sorted(listing.unlisted) == names
    assert all("cannot list" in reason for reason in listing.unlisted.values())
    assert listing.may_have("broken0.deep.words")
    assert not listing.may_have("broken.words")
    assert not listing.may_have("fine.gone")


@pytest.mark.parametrize("error", [NoSuchNamespaceError("x"), BadRequestError("none"), None])
def test_tables_of_a_catalog_without_deeper_namespaces(
    tmp_path: Path, error: Exception | None
) -> None:
    """Some of them say so by an error, such as BigQuery's; the tables are found before."""

    class Flat(SqlCatalog):
        def list_namespaces(self, namespace: Any = ()) -> Any:
            if namespace and error is not None:
                raise error
            return super().list_namespaces(namespace)

    catalog = Flat("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    for namespace in "abcd":
        catalog.create_namespace(namespace)
        catalog.create_table(f"{namespace}.words", Schema())
    assert list_tables(catalog) == [f"{namespace}.words" for namespace in "abcd"]
