"""Queues of merge tasks for Iceberg tables, workers that pull them, and one that commits."""
