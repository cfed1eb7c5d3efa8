"""How often requests to S3 are repeated that a server refuses as too many, or fails to answer."""

import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

import pyarrow as pa
from pyarrow.fs import AwsDefaultS3RetryStrategy
from pyiceberg.io import FileIO

#: From the third attempt on, the SDK waits 50 ms, 100 ms, and so on, 26 s in all; pyarrow's
#: own limit is three.
_RETRIES = 10
#: Between attempts that the SDK does not repeat, in seconds.
_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)
_SCHEMES = ("s3://", "s3a://", "s3n://")
#: The SDK writes the body of an error, such as that of "503 SlowDown", to where the range of the
#: file belongs. In a smaller range it does not fit; this is then the error, and is not repeated.
_NOT_REPEATED = "Failed to flush response stream"

_T = TypeVar("_T")


class PatientRetries(AwsDefaultS3RetryStrategy):  # type: ignore[misc]
    """Eleven attempts of each request, with growing pauses: half a minute at most.

    The SDK's standard strategy has a quota of retries that successes restore. pyarrow does not
    report these, so a client would repeat 100 requests in its life, and none from then on.
    """

    def __init__(self) -> None:
        super().__init__(max_attempts=_RETRIES)


def open_input(io: FileIO, path: str) -> "pa.NativeFile | PatientInput":
    """Opens a file for reading, of which parts of any size are read.

    Errors:
        OSError: the file cannot be opened.
    """
    stream = io.new_input(path).open()
    if isinstance(stream, pa.NativeFile) and path.startswith(_SCHEMES):
        return PatientInput(stream)
    return stream


class PatientInput:
    """A file on S3 whose reads are repeated where the SDK should have repeated a request."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def read(self, size: int | None = None) -> bytes:
        return self._repeated(lambda: bytes(self._stream.read(size)))

    def read_buffer(self, size: int | None = None) -> pa.Buffer:
        return self._repeated(lambda: self._stream.read_buffer(size))

    def _repeated(self, read: Callable[[], _T]) -> _T:
        position = self._stream.tell()
        for pause in _PAUSES:
            try:
                return read()
            except OSError as error:
                if _NOT_REPEATED not in str(error):
                    raise
            time.sleep(pause)
            self._stream.seek(position)
        return read()
