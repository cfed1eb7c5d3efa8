"""How large the proofs are."""

import os
from datetime import timedelta

#: at full counts, as ``make proof`` requests
FULL = os.environ.get("ARCTIC_PROOF") == "full"

#: publications by owners that are killed and stopped meanwhile
PUBLICATIONS = 300 if FULL else 12
#: owners that were stopped until another one had taken over, and owners that were killed
STOPPED, KILLED = (60, 40) if FULL else (3, 2)
#: how long a lease holds in these proofs
LIFE = timedelta(seconds=0.5)
