"""Views of consumers: what the state database has of partitions that wait."""
