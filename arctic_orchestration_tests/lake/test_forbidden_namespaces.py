"""Namespaces of a catalog that the user may not see."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.schema import Schema

from arctic_orchestration.lake.tables import list_tables


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
