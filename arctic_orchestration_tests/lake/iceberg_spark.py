"""Tables of format 3 that Spark writes with Iceberg's own runtime, before and after our merges.

A program: it runs where PySpark has a version for which Iceberg has a runtime, and has one JVM, in
which both Iceberg and the merges work. It prints one JSON document, with what each scenario saw.
Rows are read by Iceberg, with the columns of their lineage.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyiceberg.table import Table
from pyspark.sql import SparkSession

from arctic_orchestration.clock import utc_now
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.lake import open_catalog, spark_properties
from arctic_orchestration.lake.file_groups import FileGroup, LiveFile
from arctic_orchestration.lake.manifests import LiveFiles, live_files
from arctic_orchestration.lake.merging.merge import merge
from arctic_orchestration.lake.replacing.replace import Replaced, Replacement, replace_files
from arctic_orchestration.lake.spark_scans import spark_scans, suggested_sort
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.lake.iceberg_spark_others import OTHERS
from arctic_orchestration_tests.lake.iceberg_spark_random import random_tables

PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.54.1.0",
)
_MERGE_ON_READ = ", ".join(
    f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge")
)


class Lake:
    """A catalog that Iceberg's Spark and this library share; ``more`` are properties of Spark."""

    def __init__(self, directory: Path, more: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        settings = Settings.from_environment(
            {"ARCTIC_LAKE": str(directory), "ARCTIC_SPARK_MASTER": "local[2]"}
        )
        self.catalog = open_catalog(settings)
        properties = {
            **spark_properties(settings),
            "spark.jars.packages": ",".join(PACKAGES),
            "spark.sql.extensions": (
                "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
            ),
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "jdbc",
            "spark.sql.catalog.lake.jdbc.schema-version": "V1",
            "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{directory}/catalog.db",
            "spark.sql.catalog.lake.warehouse": str(directory / "warehouse"),
            "spark.sql.catalog.lake.cache-enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            **(more or {}),
        }
        builder = SparkSession.builder.master("local[2]")
        for key, value in properties.items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()
        self.sql("create namespace if not exists lake.db")

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.spark.sql(statement)

    def create(
        self, name: str, columns: str = "id bigint, text string", more: str = "", version: int = 3
    ) -> None:
        self.sql(
            f"create table lake.db.{name} ({columns}) using iceberg {more} "
            f"tblproperties ('format-version' = '{version}', {_MERGE_ON_READ})"
        )

    def table(self, name: str) -> Table:
        return self.catalog.load_table(f"db.{name}")

    def rows(self, name: str) -> list[list[Any]]:
        """The rows as Iceberg reads them: row id, sequence number, and the columns."""
        lineage = "_row_id, _last_updated_sequence_number"
        if self.table(name).format_version < 3:
            lineage = "null, null"
        found = self.spark.sql(f"select {lineage}, * from lake.db.{name} order by 1, id")
        return [list(row) for row in found.collect()]

    def seen(self, name: str) -> dict[str, Any]:
        """What Iceberg says of the table now."""
        files = self.spark.sql(
            f"select content, file_format, count(*) from lake.db.{name}.files "
            "group by all order by all"
        ).collect()
        metadata = self.table(name).metadata
        return {
            "rows": self.rows(name),
            "files": [list(row) for row in files],
            "next_row_id": getattr(metadata, "next_row_id", None),
        }

    def compact(self, name: str, keep: Callable[[LiveFile], bool] = lambda _: True) -> list[str]:
        """Merges the files of each partition into one; returns how."""
        how, replaced = self.replaced(name, keep)
        assert len(replaced.committed) == len(how), replaced
        return how

    def replaced(
        self,
        name: str,
        keep: Callable[[LiveFile], bool],
        *meanwhile: str,
        then: Callable[[], object] = lambda: None,
    ) -> tuple[list[str], Replaced]:
        """Does the same, and runs the statements when all is merged and nothing committed.

        ``then`` is called right before each commit, when no statement is left.
        """
        table = self.table(name)
        replacements, how = [], []
        for group in groups(live_files(table), keep):
            number = new_id(utc_now())
            directory = table.location_provider().new_data_location(f"compaction-{name}-{number}")
            done = merge(self.spark, table, group, directory, target_bytes=1 << 30)
            how.append(f"{done.way}: {done.because}")
            replacements.append(
                Replacement(
                    id=f"{name}-{number}",
                    group=group,
                    outputs=tuple(output.path for output in done.outputs),
                    rows_deleted=done.rows_deleted,
                    sort_order_id=done.sort_order_id,
                )
            )
        statements = list(meanwhile)

        def before_commit() -> None:
            while statements:
                self.sql(statements.pop(0))
            then()

        return how, replace_files(table, replacements, before_commit=before_commit)


def groups(live: LiveFiles, keep: Callable[[LiveFile], bool]) -> Iterator[FileGroup]:
    """All files of each partition, as one group."""
    places: dict[Any, list[LiveFile]] = {}
    for file in filter(keep, live.files):
        places.setdefault((file.spec_id, file.partition), []).append(file)
    for (spec_id, _), files in places.items():
        assert live.snapshot_id is not None
        group = FileGroup(
            snapshot_id=live.snapshot_id,
            sequence_number=live.sequence_number,
            spec_id=spec_id,
            files=tuple(files),
        )
        yield FileGroup.from_json(group.to_json())


def appended(lake: Lake) -> dict[str, Any]:
    """Three inserts, merged by Arrow, and merged again together with a fourth one."""
    lake.create("appended")
    for first in (1, 4, 7):
        lake.sql(
            f"insert into lake.db.appended select id, string(id) from range({first}, {first + 3})"
        )
    before = lake.seen("appended")
    how = lake.compact("appended")
    after = lake.seen("appended")
    lake.sql("insert into lake.db.appended values (10, 'ten')")
    again = lake.seen("appended")
    lake.compact("appended")
    return {
        "before": before, "how": how, "after": after, "again": again, "last": lake.seen("appended")
    }  # fmt: skip


def deleted(lake: Lake) -> dict[str, Any]:
    """Deletion vectors, updates and a merge, in two partitions of which one is merged first."""
    lake.create("deleted", "id bigint, part string", "partitioned by (part)")
    lake.sql(
        "insert into lake.db.deleted select id, if(id % 2 = 0, 'even', 'odd') from range(0, 20)",
        "insert into lake.db.deleted select id, if(id % 2 = 0, 'even', 'odd') from range(20, 40)",
        "delete from lake.db.deleted where id in (3, 4, 24, 27)",
        "update lake.db.deleted set id = id + 1000 where id in (5, 6, 26)",
        "merge into lake.db.deleted t using (select id + 7 as id from range(0, 3)) s "
        "on t.id = s.id "
        "when matched and t.id = 8 then delete when matched then update set id = t.id + 2000 "
        "when not matched then insert (id, part) values (s.id, 'odd')",
    )
    before = lake.seen("deleted")
    how = lake.compact("deleted", lambda file: file.partition == ("even",))
    half = lake.seen("deleted")
    lake.compact("deleted")
    return {"before": before, "how": how, "half": half, "after": lake.seen("deleted")}


def upgraded(lake: Lake) -> dict[str, Any]:
    """A table of format 2 with position deletes that is upgraded, and then goes on."""
    lake.create("upgraded", version=2)
    lake.sql(
        "insert into lake.db.upgraded select id, string(id) from range(0, 5)",
        "insert into lake.db.upgraded select id, string(id) from range(5, 10)",
        "delete from lake.db.upgraded where id in (1, 6)",
        "alter table lake.db.upgraded set tblproperties ('format-version' = '3')",
    )
    before = lake.seen("upgraded")
    how = lake.compact("upgraded")
    after = lake.seen("upgraded")
    lake.sql(
        "insert into lake.db.upgraded values (10, 'ten')",
        "delete from lake.db.upgraded where id = 2",
    )
    later = lake.seen("upgraded")
    lake.compact("upgraded")
    return {
        "before": before, "how": how, "after": after, "later": later, "last": lake.seen("upgraded")
    }  # fmt: skip


def upgraded_and_written(lake: Lake) -> dict[str, Any]:
    """An upgraded table whose rows have got their ids by an insert and a vector of Spark."""
    lake.create("written", version=2)
    lake.sql(
        "insert into lake.db.written select id, string(id) from range(0, 5)",
        "insert into lake.db.written select id, string(id) from range(5, 10)",
        "delete from lake.db.written where id in (1, 6)",
        "alter table lake.db.written set tblproperties ('format-version' = '3')",
        "insert into lake.db.written values (10, 'ten')",
        "delete from lake.db.written where id in (2, 7)",
    )
    before = lake.seen("written")
    how = lake.compact("written")
    return {"before": before, "how": how, "after": lake.seen("written")}


def ordered(lake: Lake) -> dict[str, Any]:
    """A table with a sort order, which Spark's own rows are merged for."""
    lake.create("ordered")
    lake.sql(
        "alter table lake.db.ordered write ordered by text",
        "insert into lake.db.ordered values (1, 'z'), (2, 'y')",
        "insert into lake.db.ordered values (3, 'x'), (4, 'w')",
    )
    before = lake.seen("ordered")
    how = lake.compact("ordered")
    stored = [row.id for row in lake.spark.sql("select id from lake.db.ordered").collect()]
    return {"before": before, "how": how, "after": lake.seen("ordered"), "stored": stored}


def continued(lake: Lake) -> dict[str, Any]:
    """Iceberg works on with what was merged: deletes, updates, its own compaction."""
    lake.create("continued")
    lake.sql(
        "insert into lake.db.continued select id, string(id) from range(0, 5)",
        "insert into lake.db.continued select id, string(id) from range(5, 10)",
    )
    lake.compact("continued")
    merged = lake.seen("continued")
    lake.sql(
        "delete from lake.db.continued where id = 4",
        "update lake.db.continued set text = 'five' where id = 5",
        "insert into lake.db.continued values (10, 'ten')",
    )
    changed = lake.seen("continued")
    lake.sql(
        "call lake.system.rewrite_data_files(table => 'db.continued', "
        "options => map('rewrite-all', 'true'))"
    )
    return {"merged": merged, "changed": changed, "rewritten": lake.seen("continued")}


def scanned(lake: Lake) -> dict[str, Any]:
    """Queries before and after a merge, in the event log that the end of Spark closes."""
    lake.create("scanned", "id bigint, text string, part int", "partitioned by (part)")
    lake.sql(
        "insert into lake.db.scanned values (1, 'a', 0), (2, 'b', 0)",
        "insert into lake.db.scanned values (11, 'c', 0), (12, 'd', 0)",
        "insert into lake.db.scanned values (21, 'it''s e', 0)",
    )
    table = lake.table("scanned")
    sizes = [task.file.file_size_in_bytes for task in table.scan().plan_files()]
    first = "id = 11"
    lake.spark.sql(f"select text from lake.db.scanned where {first}").collect()
    lake.spark.sql(
        "select id from lake.db.scanned where part = 0 and id > 10 and text = 'it''s e'"
    ).collect()
    lake.spark.sql(
        "select id from lake.db.scanned where text like 'a%' or id in (21, 22)"
    ).collect()
    lake.compact("scanned")
    merged = [task.file.file_size_in_bytes for task in table.refresh().scan().plan_files()]
    lake.spark.sql(f"select text from lake.db.scanned where {first}").collect()
    lake.spark.stop()
    found = spark_scans(table, str(lake.directory / "events"))
    assert not found.unread, found.unread
    return {
        "sizes": sorted(sizes),
        "merged": merged,
        "scans": [
            {
                "filter": scan.filter,
                "columns": sorted(scan.columns),
                "files": scan.files,
                "skipped": scan.skipped,
                "bytes": scan.bytes,
            }
            for scan in found.scans
        ],
        "suggested": suggested_sort(table, found.scans),
    }


#: the last one ends Spark
SCENARIOS = (
    appended, deleted, upgraded, upgraded_and_written, ordered, continued, *OTHERS, random_tables,
    scanned,
)  # fmt: skip


def main() -> None:
    # The workers of Spark need this environment, too.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    directory = Path(sys.argv[1])
    (directory / "events").mkdir()
    lake = Lake(
        directory,
        {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{directory}/events"},
    )
    found = {}
    wanted = {name for name in sys.argv[2:] if not name.startswith("-")}
    for scenario in SCENARIOS:
        if wanted and scenario.__name__ not in wanted:
            continue
        try:
            found[scenario.__name__] = scenario(lake)
        except Exception as error:
            found[scenario.__name__] = {"error": f"{type(error).__name__}: {error}"}
            if "--raise" in sys.argv:
                raise
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main()
