"""How large the proofs are."""

import os

#: at full counts, as ``make proof`` asks for
FULL = os.environ.get("ARCTIC_PROOF") == "full"
