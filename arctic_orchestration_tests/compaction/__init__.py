"""Compaction: planning, tasks and attempts, workers, the committer."""
