"""A small lake for tests of planning: tables with files of a few hundred bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Identifier
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "origin", StringType()),
    NestedField(3, "at", TimestampType()),
)
BY_ORIGIN = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "origin"))
BY_DAY_AND_ORIGIN = PartitionSpec(
    PartitionField(3, 1000, DayTransform(), "day"),
    PartitionField(2, 1001, IdentityTransform(), "origin"),
)
NO_PARTITIONS = PartitionSpec()


class FailingCatalog(SqlCatalog):
    """A catalog that can be down, as a whole or for some tables, or refuse some namespaces."""

    down = False
    down_for: frozenset[str] = frozenset()
    unlisted: Mapping[str, Exception] = {}

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        if self.down:
            raise ConnectionError("connection refused")
        return super().list_namespaces(namespace)

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        if error := self.unlisted.get(".".join(self.identifier_to_tuple(namespace))):
            raise error
        return super().list_tables(namespace)

    def load_table(self, identifier: str | Identifier) -> Table:
        if self.down or ".".join(self.identifier_to_tuple(identifier)) in self.down_for:
            raise ConnectionError("connection refused")
        return super().load_table(identifier)


@dataclass
class Lake:
    """A catalog and its tables."""

    catalog: FailingCatalog

    @classmethod
    def at(cls, directory: Path) -> "Lake":
        """An empty one."""
        directory.mkdir()
        catalog = FailingCatalog(
            "lake", uri=f"sqlite:///{directory}/catalog.db", warehouse=str(directory)
        )
        catalog.create_namespace("lake")
        return cls(catalog)

    def table(
        self, name: str, spec: PartitionSpec = NO_PARTITIONS, files: int = 0, **properties: str
    ) -> Table:
        """A new table, with so many files; ``major__interval`` is a property of compaction."""
        made = self.catalog.create_table(
            name, SCHEMA, partition_spec=spec, properties=written(properties)
        )
        self.append(name, files)
        return made

    def append(self, name: str, files: int = 1, origin: str = "JFK") -> None:
        """Appends files of one row each."""
        table = self.catalog.load_table(name)
        row = {"id": [1], "origin": [origin], "at": [None]}
        schema = pa.schema(
            [("id", pa.int64()), ("origin", pa.string()), ("at", pa.timestamp("us"))]
        )
        with table.transaction() as change:
            for _ in range(files):
                change.append(pa.table(row, schema=schema))

    def set(self, name: str, **properties: str) -> None:
        """Changes properties of compaction."""
        with self.catalog.load_table(name).transaction() as change:
            change.set_properties(written(properties))


def written(properties: dict[str, str]) -> dict[str, str]:
    """``minor__min_files`` is ``arctic.compaction.minor.min-files``."""
    return {
        "arctic.compaction." + name.replace("__", ".").replace("_", "-"): value
        for name, value in properties.items()
    }
