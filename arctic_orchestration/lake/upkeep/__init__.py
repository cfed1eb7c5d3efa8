"""Expiring snapshots and removing orphans, and what has to be known for that."""
