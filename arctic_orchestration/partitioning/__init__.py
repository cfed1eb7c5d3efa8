"""Dagster's partitions: their written forms, their keys, the maps between them, their windows.

What is private in Dagster's partitions stands in the modules of this package. The package imports
no Dagster; each of its modules does.
"""
