"""A process that appends to a table: ``python -m …appender LAKE TABLE WHO TIMES``.

Says ``ready`` on its output, waits for a line on its input, and appends ten rows at a time, each
batch under a key of its own, so that one that is killed can be started again.
"""

import sys
from pathlib import Path

from arctic_orchestration.lake import append, open_catalog, spark_session
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.sessions import FAST


def main(lake: str, name: str, who: str, times: str) -> None:
    settings = settings_for(Path(lake), ARCTIC_SPARK_MASTER="local[1]")
    with spark_session(settings, {**FAST, "spark.driver.memory": "512m"}) as spark:
        table = open_catalog(settings).load_table(name)
        # The first job compiles; it is not to hold up the race.
        spark.range(10).count()
        print("ready", flush=True)
        sys.stdin.readline()
        for batch in range(int(times)):
            first = int(who) * 1000 + batch * 10
            append(spark, spark.range(first, first + 10), table, once=f"{who}-{batch}")
            print(f"appended {batch}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
