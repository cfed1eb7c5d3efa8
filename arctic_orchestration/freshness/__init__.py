"""Freshness: tasks that run only when their parents are fresh, once for all clusters."""
