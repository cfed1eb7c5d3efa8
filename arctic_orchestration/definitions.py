"""The first code location of ``workspace.yaml``: the flights lake, schedules, compaction, tasks."""

import dagster as dg

from arctic_orchestration import Arctic
from arctic_orchestration.flights.definitions import (
    flights_compaction,
    flights_definitions,
    flights_freshness,
)
from arctic_orchestration.flights.schedules import flights_schedules

arctic = Arctic(
    schedules=flights_schedules(),
    freshness=flights_freshness(),
    compaction=flights_compaction(),
)
defs = dg.Definitions.merge(flights_definitions(), arctic.definitions())
