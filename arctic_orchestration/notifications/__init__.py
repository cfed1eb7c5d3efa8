"""Sends notices from the outbox to people, over the channels of a YAML file."""
