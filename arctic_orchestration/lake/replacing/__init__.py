"""Replaces the inputs of merges by their outputs, in one snapshot."""
