"""Read-only views of schedules and jobs, for people and programs."""
