"""Tags of Dagster's runs that several parts of this package read."""

import re
import zlib
from collections.abc import Mapping

from arctic_orchestration.errors import InvalidInput

#: the id of the job that requested the run
JOB_TAG = "arctic/job"
#: Dagster's: the run key of the request of a run
RUN_KEY_TAG = "dagster/run_key"
#: Dagster's: of a run that retries another one, or that a user executes again, with its tags
PARENT_TAG = "dagster/parent_run_id"
#: the page of the job
PAGE_TAG = "arctic/page"

#: the maximum length of a text for people that becomes a tag
_SHOWN = 500
#: The bytes of a tag that an index of Postgres holds whatever they are: up to 2,704 with headers.
_INDEXED = 2_600
#: The bytes of a longer one, compressed; Postgres compresses less well, and refused above 2,100.
_INDEXED_COMPRESSED = 2_000
#: Postgres compresses only what becomes a quarter shorter, and has a match in its first kilobyte.
_SHORTER = 0.6
_FIRST = 900
_MATCH = 4
#: NUL and half of a surrogate pair: what Postgres, or no database, takes
_UNSTORABLE = re.compile(r"[\0\ud800-\udfff]")


def check_storable(tags: Mapping[str, str]) -> None:
    """Refuses tags of a run that Dagster cannot store on Postgres.

    Dagster stores the run before its tags. Without them it has no run key, is not found, and is
    requested again.

    Errors:
        InvalidInput: names the first such tag.
    """
    for key, value in tags.items():
        if _UNSTORABLE.search(f"{key}{value}"):
            expected = "text that a database can hold"
            raise InvalidInput(f"tag {key[:100]}", value[:100], expected)
        size = len(f"{key}{value}".encode(errors="surrogatepass"))
        if size > _INDEXED and not _is_compressible(value.encode(errors="surrogatepass")):
            expected = f"a tag of at most {_INDEXED:,} bytes, or one that compresses to less"
            raise InvalidInput(f"tag {key[:100]}", f"{size:,} bytes: {value[:100]}...", expected)


def _is_compressible(text: bytes) -> bool:
    """Returns whether Postgres compresses a text enough: like zlib, with one code for all."""
    first = text[:_FIRST]
    places = range(len(first) - _MATCH + 1)
    if len({first[place : place + _MATCH] for place in places}) == len(places):
        return False
    packing = zlib.compressobj(9, wbits=-12, strategy=zlib.Z_FIXED)
    size = len(packing.compress(text) + packing.flush())
    return size <= min(_INDEXED_COMPRESSED, _SHORTER * len(text))


def shortened(value: str) -> str:
    """Returns the beginning of a text for people that is longer than a tag should be."""
    return value if len(value) <= _SHOWN else f"{value[: _SHOWN - 3]}..."
