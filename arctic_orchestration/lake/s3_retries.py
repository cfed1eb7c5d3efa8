"""How often requests to S3 are repeated that a server refuses as too many, or fails to answer."""

from pyarrow.fs import AwsStandardS3RetryStrategy

#: The SDK waits a random part of 1, 2, 4, 8 and 16 s in between; pyarrow's own limit is three.
_ATTEMPTS = 6


class PatientRetries(AwsStandardS3RetryStrategy):  # type: ignore[misc]
    """Six attempts of each request, with growing pauses: half a minute at most."""

    def __init__(self) -> None:
        super().__init__(max_attempts=_ATTEMPTS)
