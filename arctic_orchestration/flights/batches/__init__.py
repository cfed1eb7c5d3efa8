"""The batches of the example: fourteen tasks in two files, for two code locations."""

from pathlib import Path

_HERE = Path(__file__).parent

#: of the code location ``flights``
PUNCTUALITY = _HERE / "punctuality.json"
#: of the code location ``reports``
NETWORK = _HERE / "network.json"
