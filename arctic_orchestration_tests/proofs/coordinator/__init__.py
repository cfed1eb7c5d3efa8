"""Proofs of the run coordinator, with Dagster's own daemon, code server and webserver."""
