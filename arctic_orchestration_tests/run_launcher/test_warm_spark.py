"""A run borrows a JVM of its host, and finds nothing of the runs before it."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import dagster as dg
import psutil
import pytest

from arctic_orchestration.lake.spark_versions import LENT
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.run_launcher.hosted_place import HostedPlace, hosted_place

# Which JVM a run gets depends on those that the runs of the tests before have ended.
pytestmark = pytest.mark.in_order

CODE = dedent("""
    import json, os, signal, sys, time
    from pathlib import Path
    import dagster as dg
    from pyspark.sql.functions import udf
    from arctic_orchestration.lake import lent_jvm
    from arctic_orchestration.lake.spark_resource import pyspark_resource

    # It makes first queries faster, and costs each JVM of these tests 2 s of CPU.
    lent_jvm._warm_up = lambda session: None
    FOLDER = Path(__file__).parent

    def state(spark):
        context = spark.sparkContext
        return {
            "views": sorted(t.name for t in spark.catalog.listTables()),
            "globals": sorted(r.viewName for r in spark.sql("SHOW VIEWS IN global_temp").collect()),
            "shuffle": spark.conf.get("spark.sql.shuffle.partitions"),
            "files": sorted(context.listFiles),
            "databases": sorted(d.name for d in spark.catalog.listDatabases()),
                    "rdds": len(context._jsc.getPersistentRDDs()),
            "cached": context._jsc.sc().getRDDStorageInfo().__len__(),
            "sum": spark.range(101).selectExpr("sum(id)").first()[0],
        }

    def from_workers(spark):
        def ask(call):
            return spark.range(0, 1, 1, 1).select(udf(lambda _: str(call()))("id")).first()[0]

        before = ask(lambda: os.environ.get("LEFT_OVER"))
        ask(lambda: os.environ.update(LEFT_OVER="x"))
        return f"{before} {ask(lambda: os.environ.get('LEFT_OVER'))} {ask(lambda: sys.executable)}"

    @dg.op(config_schema={"do": dg.Field(str, default_value="nothing")},
           required_resource_keys={"pyspark"})
    def step(context):
        spark = context.resources.pyspark.spark_session
        jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        note = {"jvm": jvm, **state(spark)}
        part = FOLDER / (context.run_id + ".part")
        part.write_text(json.dumps(note))
        part.rename(FOLDER / context.run_id)
        exec(MISDEEDS.get(context.op_config["do"], "pass"),
             {**globals(), "spark": spark, "sc": spark.sparkContext, "jvm": jvm})

    MISDEEDS = {
        "view": "spark.range(3).createTempView('left_over')",
        "global view": "spark.range(3).createGlobalTempView('left_over')",
        "conf": "spark.conf.set('spark.sql.shuffle.partitions', '3')",
        "cache": "spark.range(1000).cache().count()",
        "persist": "sc.parallelize(range(9)).persist().count()",
        "file": "sc.addFile(__file__)",
        "worker": "(FOLDER / 'worker').write_text(from_workers(spark))",
        "stop": "spark.stop()",
        "kill the JVM": "os.kill(jvm, signal.SIGKILL); spark.range(1).count()",
        "exit": "os._exit(1)",
        "sleep": "time.sleep(600)",
    }

    @dg.job(executor_def=dg.in_process_executor, resource_defs={"pyspark": pyspark_resource()})
    def work():
        step()

    defs = dg.Definitions(jobs=[work])
""")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedPlace]:
    folder = tmp_path_factory.mktemp("w")
    with hosted_place(folder, CODE, interpreters=True, spark={"sessions": 2}) as made:
        yield made


def note(place: HostedPlace, **config: Any) -> dict[str, Any]:
    run = place.run(**config)
    assert run.status is dg.DagsterRunStatus.SUCCESS, place.messages(run.run_id)
    return place.note_of(run.run_id)


@pytest.mark.parametrize("misdeed", ["view", "global view", "conf", "cache", "persist"])
def test_what_can_be_cleared_is_and_the_jvm_is_lent_again(place: HostedPlace, misdeed: str) -> None:
    before = note(place, do=misdeed)
    after = note(place)
    assert before["sum"] == 5050
    assert after == before


@pytest.mark.parametrize("misdeed", ["file", "stop", "exit"])
def test_what_cannot_be_cleared_ends_the_jvm(place: HostedPlace, misdeed: str) -> None:
    """What else counts as a change that cannot be cleared: ``lake/test_lent_jvm.py``."""
    before = place.note_of(place.run(do=misdeed).run_id)
    after = note(place)
    assert after["jvm"] != before["jvm"]
    assert {**after, "jvm": 0} == {**before, "jvm": 0}
    until(lambda: not psutil.pid_exists(before["jvm"]), "the JVM has ended")


def test_python_workers_are_not_lent(place: HostedPlace) -> None:
    """Spark keeps the processes of functions in Python for the next query."""
    jvms = set()
    # On a lent JVM of Spark 3.5, not even from query to query.
    kept = None if LENT else "x"
    for _ in range(2):
        jvms.add(note(place, do="worker")["jvm"])
        assert (place.folder / "worker").read_text() == f"None {kept} {sys.executable}"
    assert len(jvms) == 1


def test_the_jvms_end_with_their_host(place: HostedPlace) -> None:
    jvm = note(place)["jvm"]
    (host,) = place.hosts()
    os.kill(host["pid"], signal.SIGKILL)
    until(lambda: not psutil.pid_exists(jvm), "the JVM has ended")
    assert note(place)["jvm"] != jvm


def test_a_run_that_kills_its_jvm_fails_alone_and_where_all_are_lent_one_starts_its_own(
    place: HostedPlace,
) -> None:
    """Beside a run that goes on, and then beside two of them."""

    def sleeping() -> tuple[str, int]:
        run_id = place.launch(place.create(do="sleep"))
        until(lambda: place.note_of(run_id), "the step has begun")
        return run_id, place.note_of(run_id)["jvm"]

    first, lent = sleeping()
    killing = place.run(do="kill the JVM")
    assert killing.status is dg.DagsterRunStatus.FAILURE
    assert place.status(first) is dg.DagsterRunStatus.STARTED
    killed = place.note_of(killing.run_id)["jvm"]
    until(lambda: lent_to(place) == [first], "the killed JVM is gone")
    second, other = sleeping()
    assert lent_to(place) == [first, second]
    assert len({lent, killed, other}) == 3
    assert note(place)["jvm"] not in (lent, killed, other)
    for run_id in (first, second):
        assert place.status(run_id) is dg.DagsterRunStatus.STARTED
        assert place.instance.run_launcher.terminate(run_id)
        assert place.ended(run_id).status is dg.DagsterRunStatus.CANCELED


#: short limits from the moment at which a JVM no longer answers; a slow one reaches none of them
_IMPATIENT = """
from arctic_orchestration.lake import session_source
from arctic_orchestration.run_launcher import spark_pool

def with_limits(usual):
    def limited(*arguments):
        limit = 3.0 if (FOLDER / "stopped").exists() else 3600.0
        session_source._RESPONSE_SECONDS = spark_pool._RETURN_SECONDS = limit
        return usual(*arguments)
    return limited

session_source._responds = with_limits(session_source._responds)
spark_pool.SparkPool.look = with_limits(spark_pool.SparkPool.look)
"""


def lent_to(place: HostedPlace) -> list[str]:
    """The runs that have the JVMs of the host."""
    return [jvm["run"] for jvm in place.hosts()[0]["spark"]]


def keepers(place: HostedPlace) -> list[int]:
    """The processes that hold the JVMs of the host."""
    return [jvm["pid"] for jvm in place.hosts()[0]["spark"]]


def test_a_jvm_that_was_stopped_is_given_up(tmp_path: Path) -> None:
    """By the run that is about to get it, and when it does not come back from that one."""
    code = CODE + _IMPATIENT
    with hosted_place(tmp_path, code, interpreters=True, spark={"sessions": 1}) as place:
        stopped = note(place)["jvm"]
        until(lambda: place.hosts()[0]["runs"] == {}, "the run has given its JVM back")
        until(lambda: place.hosts()[0]["spark"][0]["ready"], "the JVM can be lent again")
        (keeper,) = keepers(place)
        os.kill(stopped, signal.SIGSTOP)
        (tmp_path / "stopped").touch()
        try:
            assert note(place)["jvm"] != stopped
            until(lambda: keeper not in keepers(place), "the stopped JVM is given up")
        finally:
            os.kill(stopped, signal.SIGKILL)
