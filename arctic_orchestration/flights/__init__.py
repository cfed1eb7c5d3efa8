"""The example lake: all flights that left New York in 2013, from landed file to Iceberg table.

::

    raw/flights  (day x origin)  ->  flights  ->  delays_by_route (day)  ->  delay_summary
    raw/weather  (day x origin)  ------------------------------>  weather  ----^

Why the partitions are cut so:

- A **feed file** is a day and an origin, so ``raw/flights`` and ``raw/weather`` are partitioned by
  both; a key reads ``2013-01-01|EWR``. The trigger of ``flights`` groups them by day.
- ``flights`` has no partitions in Dagster: one run takes whatever set of feed files it is handed,
  and Dagster has no run of an arbitrary set (nor an unpartitioned run of a partitioned asset with
  a partitioned parent). The Iceberg table is partitioned by month: each run appends a small file,
  and compaction merges those of a month while more come.
- A run replaces the rows of exactly the (day, origin) pairs it was handed, so files of one day
  that arrive in two jobs, or three files of three different days in one job, end in the same
  table in every order, and so does a run that was killed and started again.
- ``delays_by_route`` is partitioned by day and always computes whole days anew: a day whose files
  arrived in two jobs is rolled up twice, and the second time is complete.
"""
