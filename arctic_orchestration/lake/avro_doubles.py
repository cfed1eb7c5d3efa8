"""Doubles of Avro files, which pyiceberg 0.12's compiled decoder rounds to 32 bits.

Partition values of manifests are such doubles, and Iceberg's readers take an identity partition's
column from there: a rounded value that is written back changes the rows of the table. Later
versions read them right (apache/iceberg-python#3808).
"""

import struct

from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.reader import DoubleReader

_DOUBLE = struct.Struct("<d")
_EXAMPLE = 0.1


def read_exactly() -> None:
    """Lets pyiceberg read doubles exactly in this process, in all uses of its manifests."""
    if new_decoder(_DOUBLE.pack(_EXAMPLE)).read_double() != _EXAMPLE:
        DoubleReader.read = _read  # type: ignore[method-assign, assignment]


def _read(_: DoubleReader, decoder: BinaryDecoder) -> float:
    number: float = _DOUBLE.unpack(decoder.read(_DOUBLE.size))[0]
    return number
