"""Why an object store refuses: credentials that have expired or are wrong, or too many requests.

Errors of pyarrow, pyiceberg and Spark's workers arrive as texts. S3 answers a HEAD request without
a reason, so it is then asked for a list of the objects below that object, of which there are none.
"""

import re

from pyiceberg.io import FileIO

from arctic_orchestration.errors import StoreRefused, causes

_OBJECT = re.compile(r"for key '(?P<key>[^']+)' in bucket '(?P<bucket>[^']+)'")
#: The signs of a refusal in texts of S3's clients, and what they mean.
_SIGNS = (
    (
        r"ExpiredToken|token included in the request is expired|token has expired|RequestExpired",
        "the credentials have expired: {given}",
    ),
    (
        r"InvalidAccessKeyId|INVALID_ACCESS_KEY_ID|does not exist in our records",
        "the store does not know the access key: {given}",
    ),
    (
        r"SignatureDoesNotMatch|SIGNATURE_DOES_NOT_MATCH",
        "the secret access key is wrong: {given}",
    ),
    (
        r"InvalidToken|INVALID_CLIENT_TOKEN_ID|UnrecognizedClient|MissingAuthenticationToken"
        r"|MISSING_AUTHENTICATION_TOKEN|Unable to load AWS credentials|no AWS credentials",
        "the store got no valid credentials: {given}",
    ),
    (
        r"SlowDown|SLOW_DOWN|SERVICE_UNAVAILABLE|[Rr]educe your request rate",
        "the store asks for fewer requests, after retries",
    ),
    (r"ACCESS_DENIED|AccessDenied|Access Denied|403", "the credentials do not allow it: {given}"),
)
#: Only texts of S3's clients are interpreted.
_OF_S3 = re.compile(r"AWS Error|s3a|S3|ExpiredToken|SlowDown")
_NO_REASON = re.compile(r"HTTP status 40[013]|No response body|ACCESS_DENIED")


def explained(error: Exception, io: FileIO) -> Exception:
    """Returns the error, or one that says why the store refuses, with the same cause."""
    refusal = None if isinstance(error, StoreRefused) else store_refusal(io, error)
    if refusal is None:
        return error
    first = (str(error).splitlines() or [""])[0]
    explaining = StoreRefused(f"{refusal} ({first})")
    explaining.__cause__ = error
    return explaining


def store_refusal(io: FileIO, error: BaseException) -> str | None:
    """Returns why the store refuses; None: the error is another one, or of the file alone.

    May send one request to the store.
    """
    text = "; ".join(str(one) for one in causes(error))
    if not _OF_S3.search(text):
        return None
    if _NO_REASON.search(text) and (found := _OBJECT.search(text)):
        text = _reason(io, found["bucket"], found["key"]) or text
    for signs, meaning in _SIGNS:
        if re.search(signs, text):
            return meaning.format(given=_given(io))
    return None


def _given(io: FileIO) -> str:
    """Returns where the credentials come from, without a secret."""
    properties = io.properties
    key = properties.get("s3.access-key-id") or properties.get("client.access-key-id")
    if key is None:
        return "none are in the catalog's properties, so AWS's default chain was used"
    token = "s3.session-token" in properties or "client.session-token" in properties
    return f"s3.access-key-id {key[:4]}...{', with s3.session-token' if token else ''}"


def _reason(io: FileIO, bucket: str, key: str) -> str | None:
    import pyarrow.fs as pafs
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if not isinstance(io, PyArrowFileIO):
        return None
    nothing = pafs.FileSelector(f"{bucket}/{key}", allow_not_found=True)
    try:
        # pyarrow sends a HEAD request before each read of an object, and none before a list.
        io.fs_by_scheme("s3", bucket).get_file_info(nothing)
    except (OSError, ValueError) as error:
        return str(error)
    return None
