"""How large the proofs of consumers are."""

import os
from datetime import timedelta

#: at full counts, as ``make proof`` requests
FULL = os.environ.get("ARCTIC_PROOF") == "full"

PROCESSES = 8
PARTITIONS = 5_000 if FULL else 40
#: how many processes are killed, and how many are stopped for longer than their lease holds
KILLS = 60 if FULL else 2
STOPS = 40 if FULL else 2
#: how long a lease holds
LIFE = timedelta(seconds=2 if FULL else 1.2)
#: how long the work on what was taken lasts at most
WORK_SECONDS = 0.2
#: (way of writing, processes, events of each process); see ``events/writers.py``
WRITERS = (
    [("api", 4, 500), ("batch", 2, 4000), ("raw", 6, 1500)]
    if FULL
    else [("api", 1, 20), ("batch", 1, 200), ("raw", 5, 120)]
)
