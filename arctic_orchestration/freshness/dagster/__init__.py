"""Dagster's side of freshness: declarations, assets and jobs, and the runs of tasks."""
