"""Compaction: queues of merge tasks for Iceberg tables, workers that claim them, a committer."""
