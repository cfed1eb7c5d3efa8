"""How much slower this machine is now than the one on which a bound of CPU seconds was set."""

import time

#: what the loop took there
_SECONDS = 0.1


def slowness() -> float:
    """A factor for bounds of CPU seconds, at least 1: a slow or busy machine breaks none."""
    began = time.process_time()
    kept = {}
    for number in range(400_000):
        kept[number % 1000] = (number, str(number))
    return max(1.0, (time.process_time() - began) / _SECONDS)
