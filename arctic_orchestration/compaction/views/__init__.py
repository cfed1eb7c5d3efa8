"""Views of compaction: what merge tasks and tables wait for."""
