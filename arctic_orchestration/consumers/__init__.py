"""Partition consumers: everything new since one last looked, exactly.

A *consumer* is a name under which is kept how far Dagster's event log was read, and which
partitions of an asset were found there and are not acknowledged: its *working set*. Whoever takes
partitions of it has them alone, under a lease with a fencing token, and acknowledges them in the
transaction that takes them out of the working set.

Two readings make it exact. The log is read by position, as :mod:`arctic_orchestration.event_log`
does, so that nothing that is committed late is skipped; and a reading moves the position in the
transaction that stores what it found. From then on a partition is a row, and each of its moves is
one statement on that row.
"""
