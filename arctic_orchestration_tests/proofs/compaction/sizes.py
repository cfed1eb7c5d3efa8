"""How large the proofs are."""

import os
from datetime import timedelta

#: at full counts, as ``make proof`` requests
FULL = os.environ.get("ARCTIC_PROOF") == "full"

#: how long the leases of workers and committers hold in these proofs
LIFE = timedelta(seconds=3)
#: how long where nobody dies, or a proof ends them: longer than anything takes on a slow machine
LONG = timedelta(minutes=10)
#: how long what a lost attempt wrote is left alone
GRACE = timedelta(seconds=1)
