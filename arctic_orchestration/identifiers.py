"""Identifiers that are unique without asking a database, and sort in the order they were made."""

import secrets
import threading
from datetime import datetime

#: Crockford's base 32: no letter that reads like another.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_RANDOM_BITS = 80

_lock = threading.Lock()
_last = 0


def new_id(now: datetime) -> str:
    """A new ULID: 26 characters, 48 bits of milliseconds and 80 random bits.

    Within one process and one millisecond the random part counts upwards, so that what was
    made first also sorts first.

    A counter of a database would begin again with a new database, and Dagster refuses a
    ``run_key`` that it has seen for ever: a job that reuses an old number would never run.

    Source: the ULID specification, https://github.com/ulid/spec.
    """
    global _last
    milliseconds = int(now.timestamp() * 1000)
    with _lock:
        if milliseconds == _last >> _RANDOM_BITS:
            number = _last + 1
        else:
            number = (milliseconds << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
        _last = number
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))
