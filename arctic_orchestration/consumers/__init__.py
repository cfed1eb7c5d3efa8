"""Partition consumers: deliver everything new since the last delivery, exactly.

A *consumer* is a name with a position in Dagster's event log and a *working set*: the partitions of
an asset that were read there and are not acknowledged. A caller that takes partitions owns them
exclusively, under a lease with a fencing token, and acknowledges them in the transaction that
removes them from the working set.

Two steps make it exact. The log is read by position, as :mod:`arctic_orchestration.event_log` does,
so that late commits are not skipped; and each read moves the position in the transaction that
stores the events. From then on a partition is a row, and each of its transitions is one statement
on that row.
"""
