"""Namespaces of a catalog that cannot be listed."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import BadRequestError, ForbiddenError
from pyiceberg.schema import Schema

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


@pytest.mark.parametrize("failing", [2, 3])
def test_tables_beside_namespaces_that_cannot_be_listed(tmp_path: Path, failing: int) -> None:
    """With the reason; after three in a row, the catalog is taken as down."""

    class Broken(SqlCatalog):
        def list_tables(self, namespace: Any) -> Any:
            if namespace[0].startswith("broken"):
                raise BadRequestError("cannot list")
            return super().list_tables(namespace)

    catalog = Broken("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    broken = [f"broken{number}" for number in range(failing)]
    for namespace in ("fine", *broken):
        catalog.create_namespace(namespace)
        catalog.create_table(f"{namespace}.words", Schema())
    if failing == 3:
        with pytest.raises(BadRequestError):
            list_catalog(catalog)
        return
    listing = list_catalog(catalog)
    assert listing.names == ["fine.words"]
    assert listing.unlisted == dict.fromkeys(broken, "cannot list")
    assert listing.may_have("broken0.deep.words")
    assert not listing.may_have("broken.words")
    assert not listing.may_have("fine.gone")
