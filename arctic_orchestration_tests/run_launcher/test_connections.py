"""A hosted run holds few connections to Dagster's Postgres, and leaves none."""

from pathlib import Path

import psutil
import psycopg2

from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.run_launcher.hosted_place import hosted_place

CODE = """
import dagster as dg

@dg.op
def step(context):
    for number in range(20):
        context.log.info(str(number))

@dg.job(executor_def=dg.in_process_executor)
def work():
    step()

defs = dg.Definitions(jobs=[work])
"""
_COUNT = """
    select count(*) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
"""


def test_a_run_has_two_connections_at_most_and_leaves_none(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    name = "connections_of_runs"
    postgres_server.create_database(name)
    with hosted_place(tmp_path, CODE, (postgres_server, name), interpreters=True) as place:
        place.run()
        counts = []
        run_id = place.create()
        with psycopg2.connect(postgres_server.url(name).replace("+psycopg2", "")) as looking:
            looking.autocommit = True
            with looking.cursor() as cursor:
                cursor.execute(_COUNT)
                (before,) = cursor.fetchone() or (0,)
                place.launch(run_id)
                (host,) = place.hosts()
                processes = [run["pid"] for run in host["runs"].values()]
                while any(psutil.pid_exists(process) for process in processes):
                    cursor.execute(_COUNT)
                    counts.append((cursor.fetchone() or (0,))[0])
                cursor.execute(_COUNT)
                (after,) = cursor.fetchone() or (0,)
        looking.close()
        assert place.ended(run_id).is_success
    assert max(counts) - before <= 2
    assert after <= before
