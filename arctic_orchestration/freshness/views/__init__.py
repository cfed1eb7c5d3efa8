"""Views of tasks: lists, one task with its history, why it does or does not run."""
