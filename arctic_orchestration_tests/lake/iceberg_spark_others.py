"""Tables as others leave them: Iceberg's Spark writes them, and reads them after our merges.

Scenarios of :mod:`arctic_orchestration_tests.lake.iceberg_spark`, in its session.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from arctic_orchestration.clock import utc_now
from arctic_orchestration.lake.upkeep.maintenance import expire_snapshots
from arctic_orchestration.lake.upkeep.manifest_rewriting import rewrite_manifests
from arctic_orchestration.lake.upkeep.orphans import remove_orphans

if TYPE_CHECKING:
    from arctic_orchestration_tests.lake.iceberg_spark import Lake

_COPY_ON_WRITE = ", ".join(
    f"'write.{what}.mode' = 'copy-on-write'" for what in ("delete", "update", "merge")
)


def _merged(lake: "Lake", name: str) -> dict[str, Any]:
    before = lake.seen(name)
    how = lake.compact(name)
    return {"before": before, "how": how, "after": lake.seen(name)}


def hive(lake: "Lake") -> dict[str, Any]:
    """Files without field ids and without the partition's column, added to a table.

    Rows of one partition are deleted; one column has another name now, in a struct too.
    """
    place = f"{lake.directory}/hive"
    rows = lake.spark.sql(
        "select id, named_struct('a', string(id), 'b', id) as s, array(id, null) as l, "
        "timestamp'2020-01-01 00:00:00Z' + make_interval(0, 0, 0, int(id)) as at, "
        "date'2020-01-01' + int(id % 2) as day from range(0, 20, 1, 3)"
    )
    rows.write.partitionBy("day").parquet(place)
    columns = "id bigint, s struct<a: string, b: bigint>, l array<bigint>, at timestamp, day date"
    lake.create("hive", columns, "partitioned by (day)", version=2)
    lake.sql(
        f"call lake.system.add_files(table => 'db.hive', source_table => '`parquet`.`{place}`')"
    )
    whole = lake.seen("hive")
    how = lake.compact("hive", lambda file: file.partition[0] % 2 == 0)
    half = lake.seen("hive")
    lake.sql(
        "delete from lake.db.hive where id in (1, 7, 8)",
        "alter table lake.db.hive rename column s.b to c",
        "alter table lake.db.hive rename column l to list",
    )
    found = _merged(lake, "hive")
    return found | {"whole": whole, "half": half, "how": how + found["how"]}


def doubles(lake: "Lake") -> dict[str, Any]:
    """A partition for each double: 32 bits cannot tell two of them apart, nor hold the third.

    Iceberg reads the column from the manifests, which a merge and its upkeep write anew.
    """
    lake.create("doubles", "id bigint, d double", "partitioned by (d)", version=2)
    for n in range(2):
        lake.sql(
            f"insert into lake.db.doubles select 3 * {n} + i, d from values "
            "(0L, 0.1d), (1L, 0.1d + 1e-12d), (2L, 1e300d) as v(i, d)"
        )
    before = lake.seen("doubles")
    rewritten = rewrite_manifests(lake.table("doubles"))
    upkept = lake.seen("doubles")
    how = lake.compact("doubles")
    equal = lake.spark.sql("select id from lake.db.doubles where d = 0.1d order by id").collect()
    return {
        "before": before,
        "upkept": upkept,
        "rewritten": rewritten.merged,
        "how": how,
        "after": lake.seen("doubles"),
        "equal": [row.id for row in equal],
    }


def far(lake: "Lake") -> dict[str, Any]:
    """Partitions of a day that Python has not, and text without a bound: U+D7FF has no next one."""
    lake.create("far", "id bigint, d date, s string", "partitioned by (d)", version=2)
    for n in range(2):
        lake.sql(
            f"insert into lake.db.far select 2 * {n} + i, date_add(date'9999-12-31', i), "
            "concat(repeat('a', 15), decode(unhex('ED9FBF'), 'UTF-8'), 'zzz') "
            "from values (0), (1) as v(i)"
        )

    def rows() -> list[list[Any]]:
        query = "select id, cast(d as string), s from lake.db.far order by id"
        return [list(row) for row in lake.spark.sql(query).collect()]

    before = rows()
    lake.compact("far")
    changed = "partitions.d=2932897"
    query = f"select summary['{changed}'] from lake.db.far.snapshots where operation = 'replace'"
    lake.sql("alter table lake.db.far set tblproperties ('write.summary.partition-limit' = 9)")
    lake.sql("insert into lake.db.far select 4, date_add(date'9999-12-31', 1), 'b'")
    lake.compact("far")
    return {
        "before": before,
        "after": rows(),
        "summaries": [row[0] for row in lake.spark.sql(query).collect()],
        "files": lake.spark.table("lake.db.far.files").count(),
    }


def copied(lake: "Lake") -> dict[str, Any]:
    """Copy on write in format 2, with a partition spec and columns that change."""
    columns = "id bigint, text string, s struct<a: int, l: array<struct<x: int>>>"
    lake.sql(
        f"create table lake.db.copied ({columns}) using iceberg partitioned by (bucket(2, id)) "
        f"tblproperties ('format-version' = '2', {_COPY_ON_WRITE})"
    )
    values = (
        "select id, concat('text', id), named_struct('a', int(id), 'l', "
        "array(named_struct('x', int(id)), null)) from range({}, {})"
    )
    lake.sql(
        f"insert into lake.db.copied {values.format(0, 6)}",
        "alter table lake.db.copied replace partition field bucket(2, id) with truncate(5, text)",
        f"insert into lake.db.copied {values.format(6, 12)}",
        "alter table lake.db.copied drop partition field truncate(5, text)",
        "alter table lake.db.copied rename column text to words",
        "alter table lake.db.copied rename column s.l.element.x to y",
        "alter table lake.db.copied alter column s.a type bigint",
        "alter table lake.db.copied add column s.z string",
        "insert into lake.db.copied select id, 'w', named_struct('a', id, 'l', null, 'z', 'z') "
        "from range(12, 15)",
        "delete from lake.db.copied where id in (1, 7)",
        "update lake.db.copied set words = 'new' where id in (2, 8)",
        "merge into lake.db.copied t using (select id from range(3, 20, 8)) s on t.id = s.id "
        "when matched then update set words = 'met' "
        "when not matched then insert (id, words, s) values (s.id, 'added', null)",
    )
    return _merged(lake, "copied")


def void(lake: "Lake") -> dict[str, Any]:
    """Format 1, in which a partition field that is dropped becomes void."""
    lake.create("void", "id bigint, day date", "partitioned by (days(day), id)", version=1)
    lake.sql(
        "insert into lake.db.void values (1, date'2020-01-01'), (2, date'1969-12-31')",
        "insert into lake.db.void values (1, date'2020-01-01'), (2, null)",
        "alter table lake.db.void drop partition field id",
        "insert into lake.db.void values (3, date'2020-01-01'), (4, null)",
        "insert into lake.db.void values (5, date'2020-01-01'), (6, null)",
    )
    return _merged(lake, "void")


def clustered(lake: "Lake") -> dict[str, Any]:
    """Format 3, ordered by z-order and then by columns, and changed by merge on read."""
    lake.create("clustered", "id bigint, x int, y int")
    lake.sql(
        "insert into lake.db.clustered select id, id % 4, id % 3 from range(0, 12)",
        "insert into lake.db.clustered select id, id % 4, id % 3 from range(12, 24)",
        "call lake.system.rewrite_data_files(table => 'db.clustered', strategy => 'sort', "
        "sort_order => 'zorder(x, y)', options => map('rewrite-all', 'true'))",
        "alter table lake.db.clustered write ordered by x desc, y",
        "insert into lake.db.clustered select id, id % 4, id % 3 from range(24, 30)",
        "delete from lake.db.clustered where id in (3, 25)",
        "update lake.db.clustered set x = x + 10 where y = 1",
        "merge into lake.db.clustered t using (select id from range(28, 32)) s on t.id = s.id "
        "when matched then delete when not matched then insert (id, x, y) values (s.id, -1, -1)",
    )
    found = _merged(lake, "clustered")
    stored = lake.spark.sql("select x, y from lake.db.clustered").collect()
    return found | {"stored": [list(row) for row in stored]}


def branched(lake: "Lake") -> dict[str, Any]:
    """A branch and a tag, whose files must outlive merges, expiry and the removal of orphans."""
    lake.create("branched", version=2)
    lake.sql(
        "insert into lake.db.branched values (1, 'a'), (2, 'b')",
        "alter table lake.db.branched create tag first",
        "alter table lake.db.branched create branch side",
        "insert into lake.db.branched.branch_side values (3, 'side')",
        "delete from lake.db.branched.branch_side where id = 1",
        "insert into lake.db.branched values (4, 'd')",
        "delete from lake.db.branched where id = 2",
    )

    def refs() -> dict[str, list[list[Any]]]:
        return {
            ref: [
                list(row)
                for row in lake.spark.sql(
                    f"select * from lake.db.branched version as of '{ref}' order by id"
                ).collect()
            ]
            for ref in ("first", "side")
        }

    known = refs()
    found = _merged(lake, "branched")
    table, later = lake.table("branched"), utc_now() + timedelta(days=2)
    expired = expire_snapshots(table, older_than=later, keep_last=1, now=later)
    removed = remove_orphans(table, older_than=later, any_age=True, now=later)
    return found | {
        "refs": [known, refs()],
        "kept": lake.seen("branched"),
        "expired": len(expired.snapshot_ids),
        "orphans": len(removed.files),
    }


def positions(lake: "Lake") -> dict[str, Any]:
    """Merge on read in format 2: position deletes of a partition's files, and of one file each.

    One partition is merged first; deletes of the other one remain.
    """
    columns = "id bigint, part string, text string"
    lake.create("positions", columns, "partitioned by (part)", version=2)
    values = "select id, if(id % 2 = 0, 'even', 'odd'), string(id) from range({}, {})"
    grain = "alter table lake.db.positions set tblproperties ('write.delete.granularity' = '{}')"
    lake.sql(
        grain.format("partition"),
        f"insert into lake.db.positions {values.format(0, 20)}",
        f"insert into lake.db.positions {values.format(20, 40)}",
        "delete from lake.db.positions where id in (3, 4, 24, 27)",
        "update lake.db.positions set text = 'new' where id in (5, 6, 26)",
        grain.format("file"),
        # The same rows again, and rows that were written after the first deletes.
        "delete from lake.db.positions where id in (5, 7, 8, 28)",
        "merge into lake.db.positions t using (select id + 9 as id from range(0, 40, 8)) s "
        "on t.id = s.id when matched and t.id = 9 then delete "
        "when matched then update set text = 'met', part = 'moved' "
        "when not matched then insert (id, part, text) values (s.id, 'odd', 'added')",
    )
    before = lake.seen("positions")
    how = lake.compact("positions", lambda file: file.partition == ("even",))
    half = lake.seen("positions")
    lake.compact("positions")
    return {"before": before, "how": how, "half": half, "after": lake.seen("positions")}


def manifests(lake: "Lake") -> dict[str, Any]:
    """Small manifests are merged, of data and of deletes; then Iceberg writes on, and merges them.

    Half of the table was written in format 2.
    """

    def count() -> list[list[int]]:
        query = "select content, count(*) from lake.db.manifests.manifests group by 1 order by 1"
        return [list(row) for row in lake.spark.sql(query).collect()]

    lake.create("manifests", more="partitioned by (bucket(2, id))", version=2)
    lake.sql(
        "alter table lake.db.manifests set tblproperties ('commit.manifest-merge.enabled' = false)",
        *(f"insert into lake.db.manifests values ({n}, 'a'), ({n + 1}, 'b')" for n in (0, 2, 4)),
        "delete from lake.db.manifests where id = 3",
        "alter table lake.db.manifests set tblproperties ('format-version' = 3)",
        *(f"insert into lake.db.manifests values ({n}, 'a'), ({n + 1}, 'b')" for n in (6, 8)),
        "delete from lake.db.manifests where id = 6",
        "update lake.db.manifests set text = 'new' where id = 9",
    )
    counts, before = [count()], lake.seen("manifests")
    done = rewrite_manifests(lake.table("manifests"))
    counts.append(count())
    after = lake.seen("manifests")
    lake.sql(
        "insert into lake.db.manifests values (10, 'a')",
        "delete from lake.db.manifests where id = 0",
        "call lake.system.rewrite_manifests('db.manifests')",
    )
    again = lake.seen("manifests")
    return {
        "before": before,
        "after": after,
        "again": again,
        "counts": counts,
        "merged": [done.before, done.merged, done.written],
        "summary": lake.spark.sql(
            "select operation, summary['manifests-replaced'] from lake.db.manifests.snapshots "
            f"where snapshot_id = {done.snapshot_id}"
        ).collect(),
    }


def raced(lake: "Lake") -> dict[str, Any]:
    """Iceberg deletes and appends while merges are about to be committed, in both formats."""
    found: dict[str, Any] = {}
    for version in (2, 3):
        name = f"raced_{version}"
        lake.create(name, "id bigint, part string", "partitioned by (part)", version=version)
        lake.sql(
            *2 * [f"insert into lake.db.{name} select id, if(id < 3, 'a', 'b') from range(0, 6)"]
        )
        _, replaced = lake.replaced(
            name,
            lambda _: True,
            f"delete from lake.db.{name} where id = 1",
            f"insert into lake.db.{name} values (9, 'b')",
        )
        raced = lake.seen(name)
        lake.compact(name)
        found[str(version)] = {
            "committed": len(replaced.committed),
            "conflicts": list(replaced.conflicts.values()),
            "raced": raced,
            "after": lake.seen(name),
        }
    return found


OTHERS = (hive, copied, void, doubles, far, clustered, branched, positions, manifests, raced)
