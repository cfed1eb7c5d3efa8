"""The example lake: all flights that left New York in 2013, from landed file to Iceberg table.

::

    raw/flights          ->  flights  ->  delays_by_route  ->  delay_summary
      (day x origin)          (day)         (day)               (day)
    raw/weather (hour)   ->  weather (day)  -------------------^
    nightly_summary (day of arrival)

The reasons for the partitions:

- A **file of flights** is a day and an origin, so ``raw/flights`` is partitioned by both; a key
  reads ``2013-01-01|EWR``. A **file of weather** is an hour at all three origins:
  ``2013-01-01-05:00``. Days and hours are those of New York; two days have 23 and 25.
- Everything else is partitioned by day, and a run is for the days that its schedule, a backfill or
  the command line selects: one, or a range of them in one run. The Iceberg tables of flights and
  routes are partitioned by month: each run appends a small file, and compaction merges those of a
  month while more come.
- A run replaces the rows of exactly its days, so late files, runs in another order, and a killed
  and restarted run all lead to the same table.
- ``nightly_summary`` is partitioned by the day on which files arrive, which is a present day.
"""
