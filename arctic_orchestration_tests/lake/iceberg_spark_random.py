"""Random tables of format 3, written by Iceberg's Spark, which judges our merges of them.

A scenario of :mod:`arctic_orchestration_tests.lake.iceberg_spark`, in its session. A table gets
rows, deletion vectors, equality deletes, updates, other columns, partitions and sort orders in any
order, some of them between a merge and its commit; some begin in format 2, with position deletes.
Before and after each commit of ours, Iceberg reads each row with its id and its sequence number.
"""

import os
import random
from typing import TYPE_CHECKING, Any

from arctic_orchestration.lake.file_groups import LiveFile
from arctic_orchestration_tests.lake.format_three import delete_values

if TYPE_CHECKING:
    from arctic_orchestration_tests.lake.iceberg_spark import Lake

TABLES = int(os.environ.get("ARCTIC_RANDOM_TABLES", "4"))
_STEPS = 8
_FIELDS = ("part", "bucket(2, id)", "truncate(1, text)")


def random_tables(lake: "Lake") -> dict[str, Any]:
    """What was found wrong, by table; how often each thing happened; and the control."""
    problems: dict[str, list[str]] = {}
    happened: dict[str, int] = {}
    for seed in range(TABLES):
        table = _RandomTable(lake, seed)
        try:
            table.live()
        except Exception as error:
            table.problems.append(f"{type(error).__name__}: {error}")
        if table.problems:
            problems[table.name] = [*table.problems, *table.done]
        else:
            lake.sql(f"drop table lake.db.{table.name} purge")
        for what, times in table.happened.items():
            happened[what] = happened.get(what, 0) + times
    return {
        "tables": TABLES, "problems": problems, "happened": happened, "control": _control(lake)
    }  # fmt: skip


def _control(lake: "Lake") -> list[str]:
    """What is found wrong with a copy of all rows that keeps their values and not their lineage."""
    table = _RandomTable(lake, TABLES)
    table.create(version=3)
    table.insert()
    table.update()
    before = table.rows()
    lake.sql(f"insert overwrite lake.db.{table.name} select * from lake.db.{table.name}")
    table.compare(before, table.rows())
    return table.problems


class _RandomTable:
    def __init__(self, lake: "Lake", seed: int) -> None:
        self.name = f"random_{seed}"
        self.problems: list[str] = []
        self.done: list[str] = []
        self.happened: dict[str, int] = {}
        self._lake = lake
        self._random = random.Random(seed)
        self._next = 0
        self._text = "text"
        self._value = "int"
        self._added: list[str] = []

    def live(self) -> None:
        self.create(version=self._random.choice([2, 3, 3]))
        self.insert()
        steps = [
            self.insert, self.insert, self.insert, self.delete, self.delete, self.update,
            self.upsert, self.add_column, self.rename_column, self.widen_column, self.drop_column,
            self.partition, self.sort, self.upgrade, self.delete_equal, self.merge_files,
        ]  # fmt: skip
        for _ in range(_STEPS):
            self._random.choice(steps)()
        self.upgrade()
        self.merge_files()
        self.delete()
        self.merge_files()

    def create(self, version: int) -> None:
        columns = "id bigint, part string, value bigint, text string, number int"
        more = self._random.choice(["", "partitioned by (part)"])
        self._count(f"format {version}")
        self._lake.create(self.name, columns, more, version)

    def insert(self) -> None:
        count = self._random.randint(1, 12)
        self._sql(f"insert into {{}} select {self._row('id')} from range({self._next}, "
                  f"{self._next + count}, 1, {self._random.randint(1, 2)})")  # fmt: skip
        self._next += count

    def delete(self) -> None:
        self._sql(f"delete from {{}} where {self._some()}")

    def update(self) -> None:
        column = self._random.choice([f"{self._text} = 'new'", "part = 'b'", "number = 7"])
        self._sql(f"update {{}} set {column} where {self._some()}")

    def upsert(self) -> None:
        first = self._random.randint(0, self._next)
        self._sql(
            f"merge into {{}} t using (select {self._row('id')} from range({first}, {first + 6}))"
            " s on t.id = s.id when matched and t.id % 3 = 0 then delete when matched then "
            f"update set t.{self._text} = 'merged' when not matched then insert *"
        )
        self._next = max(self._next, first + 6)

    def add_column(self) -> None:
        name = f"added_{len(self.done)}"
        self._added.append(name)
        self._sql(f"alter table {{}} add column {name} struct<a: bigint, l: array<string>>")

    def drop_column(self) -> None:
        if self._added:
            name = self._added.pop(self._random.randrange(len(self._added)))
            self._sql(f"alter table {{}} drop column {name}")

    def rename_column(self) -> None:
        name = f"text_{len(self.done)}"
        self._sql(f"alter table {{}} rename column {self._text} to {name}")
        self._text = name

    def widen_column(self) -> None:
        self._value = "bigint"
        self._sql("alter table {} alter column number type bigint")

    def partition(self) -> None:
        field = self._random.choice(_FIELDS).replace("text", self._text)
        there = {one.name for one in self._lake.table(self.name).spec().fields}
        name = f"by_{len(self.done)}"
        if there:
            self._sql(f"alter table {{}} drop partition field {self._random.choice(sorted(there))}")
        else:
            self._sql(f"alter table {{}} add partition field {field} as {name}")

    def sort(self) -> None:
        order = self._random.choice(["ordered by value desc", "unordered"])
        self._sql(f"alter table {{}} write {order}")

    def upgrade(self) -> None:
        if self._lake.table(self.name).format_version < 3:
            self._sql("alter table {} set tblproperties ('format-version' = '3')")
            self._count("upgrade")

    def delete_equal(self) -> None:
        """Iceberg's Spark applies such deletes and does not write them."""
        table = self._lake.table(self.name)
        if table.format_version < 3 or table.spec().fields or table.current_snapshot() is None:
            return
        values = self._random.sample(range(10), 2)
        delete_values(table, values)
        self.done.append(f"delete rows whose value is one of {values}")
        self._count("equality deletes")

    def merge_files(self) -> None:
        """Merges the files of some partitions; a statement of Spark may come before the commit."""
        if self._lake.table(self.name).current_snapshot() is None:
            return
        meanwhile: list[str] = []
        if self._random.random() < 0.4:
            change = self._random.choice(
                [f"delete from {{}} where {self._some()}",
                 f"update {{}} set number = 9 where {self._some()}"]
            )  # fmt: skip
            meanwhile.append(change.format(f"lake.db.{self.name}"))
            self._count("meanwhile")
        chosen = self._random.choice([0, 1, None])

        def keep(file: LiveFile) -> bool:
            return chosen is None or hash_of(file) % 2 == chosen

        before = [] if meanwhile else [self.rows()]
        how, replaced = self._lake.replaced(
            self.name, keep, *meanwhile, then=lambda: before.append(self.rows())
        )
        self.done.append(f"merge by {how} beside {meanwhile}: {replaced}")
        self._count("merge", len(replaced.committed))
        for one in how:
            self._count(one.partition(":")[0])
        if before:
            self.compare(before[-1], self.rows())

    def rows(self) -> list[list[Any]]:
        """The rows as Iceberg reads them: row id, sequence number, and the columns."""
        return sorted(self._lake.rows(self.name), key=lambda row: (row[2], repr(row)))

    def compare(self, before: list[list[Any]], after: list[list[Any]]) -> None:
        """Notes what a merge has changed; rows of an upgraded table may get their lineage."""
        if len(before) != len(after):
            self.problems.append(f"{len(before)} rows became {len(after)}")
            return
        for old, new in zip(before, after, strict=True):
            lineage = [
                had if had is not None else has for had, has in zip(old[:2], new, strict=False)
            ]
            if [*lineage, *old[2:]] != new:
                self.problems.append(f"{old} became {new}")
        ids = [row[0] for row in after if row[0] is not None]
        if len(set(ids)) < len(ids):
            self.problems.append(f"rows with one id: {sorted(ids)}")
        following = getattr(self._lake.table(self.name).metadata, "next_row_id", None)
        if ids and (following is None or max(ids) >= following):
            self.problems.append(f"the next row id is {following}, and {max(ids)} is used")

    def _row(self, number: str) -> str:
        more = "".join(
            f", named_struct('a', {number}, 'l', array(string({number}), null)) as {name}"
            for name in self._added
        )
        return (
            f"{number}, if({number} % 2 = 0, 'a', 'b') as part, {number} % 10 as value, "
            f"concat(string({number} % 3), 'text') as {self._text}, "
            f"{self._value}({number}) as number{more}"
        )

    def _some(self) -> str:
        divisor = self._random.randint(2, 7)
        return f"id % {divisor} = {self._random.randrange(divisor)}"

    def _sql(self, statement: str) -> None:
        filled = statement.format(f"lake.db.{self.name}")
        self.done.append(filled)
        self._lake.sql(filled)
        self._count(statement.split(" {}")[0])

    def _count(self, what: str, times: int = 1) -> None:
        self.happened[what] = self.happened.get(what, 0) + times


def hash_of(file: LiveFile) -> int:
    """A number for the partition of a file, the same in all processes."""
    return sum(repr((file.spec_id, file.partition)).encode())
