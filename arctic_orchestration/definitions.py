"""The code location that ``workspace.yaml`` names: the flights lake, its schedules, compaction."""

import dagster as dg

from arctic_orchestration import Arctic
from arctic_orchestration.flights.definitions import flights_compaction, flights_definitions
from arctic_orchestration.flights.schedules import flights_schedules

arctic = Arctic(schedules=flights_schedules())
defs = dg.Definitions.merge(flights_definitions(), arctic.definitions(), flights_compaction())
