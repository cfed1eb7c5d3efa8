"""Views of the run queue: what the state database has of runs that wait."""
