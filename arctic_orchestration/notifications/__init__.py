"""Tells people, over the channels of a YAML file, what the outbox of notices holds."""
