"""Identifiers that are unique without a database, and sort in the order of their creation."""

import secrets
import threading
from datetime import datetime

#: Crockford's base 32: without ambiguous letters.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_RANDOM_BITS = 80

_lock = threading.Lock()
_last = 0


def new_id(now: datetime) -> str:
    """Returns a new ULID: 26 characters, 48 bits of milliseconds and 80 random bits.

    Within one process and one millisecond the random part counts upwards, so that ids sort in the
    order of their creation.

    A database's counter would start again with a new database, and Dagster refuses a ``run_key``
    that it has seen forever: a job with a reused number would never run.

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
