"""Identifiers that are unique without asking a database, and sort by the time they were made."""

import secrets
from datetime import datetime

#: Crockford's base 32: no letter that reads like another.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(now: datetime) -> str:
    """A new ULID: 26 characters, 48 bits of milliseconds and 80 random bits.

    A counter of a database would begin again with a new database, and Dagster refuses a
    ``run_key`` that it has seen for ever: a job that reuses an old number would never run.

    Source: the ULID specification, https://github.com/ulid/spec.
    """
    number = (int(now.timestamp() * 1000) << 80) | secrets.randbits(80)
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))
