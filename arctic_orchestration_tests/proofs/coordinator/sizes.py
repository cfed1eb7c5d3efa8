"""How large the proofs are."""

import os

#: at full counts, as ``make proof`` requests
FULL = os.environ.get("ARCTIC_PROOF") == "full"
