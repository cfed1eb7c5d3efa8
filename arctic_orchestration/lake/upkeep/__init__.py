"""Upkeep: expires snapshots and removes orphans."""
