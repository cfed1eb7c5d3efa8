"""What people and programs see of schedules and jobs; nothing here writes."""
