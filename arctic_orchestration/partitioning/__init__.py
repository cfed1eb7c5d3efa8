"""Dagster's partitions: their written forms, their keys, the maps between them, their windows.

The modules of this package contain all uses of private parts of Dagster's partitions. The package
imports no Dagster; each of its modules does.
"""
