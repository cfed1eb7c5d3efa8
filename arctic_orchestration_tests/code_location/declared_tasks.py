"""Batch files, and an asset and a job under ``fresh_parents``, for the tests of declarations."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from arctic_orchestration import Freshness, fresh_parents

FUNCTIONS = "arctic_orchestration_tests.code_location.functions_of_tests"
NO_SESSION = f"{FUNCTIONS}:done_by"


class NoSpark(dg.ConfigurableResource[Any]):
    """In the place of a session that nobody requests."""


def written(directory: Path, name: str, *tasks: dict[str, Any], **fields: Any) -> Path:
    """A batch file whose tasks are functions, unless they say something else."""
    file = directory / f"{name}.json"
    made = [task if "sql" in task else {"python": NO_SESSION, **task} for task in tasks]
    file.write_text(json.dumps({"name": name, "tasks": made, **fields}))
    return file


def whole(**given: Any) -> dg.Definitions:
    """Task definitions in a location that can be loaded."""
    around = dg.Definitions(resources={"pyspark": NoSpark()}, executor=dg.in_process_executor)
    return dg.Definitions.merge(Freshness(**given).definitions(), around)


def after(hours: float) -> dict[str, float]:
    return {"freshnessCriteriaInHours": hours}


@dg.op
def nothing() -> None: ...


@fresh_parents({"b/child": 3})
@dg.asset(group_name="others", metadata={"owner": "me"})
def by_hand(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
    """An asset with a docstring."""
    return dg.MaterializeResult(metadata={"rows": 3})


@fresh_parents(
    {"by_hand": None},
    name="mail",
    batch="b",
    retries=2,
    retry_delay=timedelta(minutes=5),
    timezone="Asia/Tokyo",
)
@dg.job
def send() -> None:
    nothing()


def undeclared() -> dg.AssetsDefinition:
    @dg.asset
    def plain() -> None: ...

    return plain
