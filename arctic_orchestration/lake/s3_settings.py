"""Hadoop's settings for S3, derived from pyiceberg's properties, so that one of them is enough.

Only what the properties say is set: without credentials in them, both use their default chains
(environment, profile, role of the machine).
"""

from collections.abc import Iterator, Mapping

from pyiceberg.io import (
    AWS_ACCESS_KEY_ID,
    AWS_REGION,
    AWS_ROLE_ARN,
    AWS_SECRET_ACCESS_KEY,
    AWS_SESSION_TOKEN,
    S3_ACCESS_KEY_ID,
    S3_ANONYMOUS,
    S3_CONNECT_TIMEOUT,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_REGION,
    S3_REQUEST_TIMEOUT,
    S3_ROLE_ARN,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
)
from pyiceberg.utils.properties import get_first_property_value, property_as_bool

#: The schemes of one store, whose files have the same keys.
S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})

_PROVIDER = "fs.s3a.aws.credentials.provider"
_PROVIDERS = "org.apache.hadoop.fs.s3a"


def hadoop_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings ``fs.s3a.*`` for pyiceberg's properties of a table's files."""
    return dict(_settings(dict(properties)))


def _settings(properties: dict[str, str]) -> Iterator[tuple[str, str]]:
    endpoint = properties.get(S3_ENDPOINT)
    if endpoint:
        yield "fs.s3a.endpoint", endpoint
        yield "fs.s3a.connection.ssl.enabled", str(not endpoint.startswith("http://")).lower()
    if endpoint or S3_FORCE_VIRTUAL_ADDRESSING in properties:
        # As pyarrow's: a bucket is a host name only of Amazon's own endpoint.
        virtual = property_as_bool(properties, S3_FORCE_VIRTUAL_ADDRESSING, False)
        yield "fs.s3a.path.style.access", str(not virtual).lower()
    if region := get_first_property_value(properties, S3_REGION, AWS_REGION):
        yield "fs.s3a.endpoint.region", region
    yield from _credentials(properties)
    if seconds := properties.get(S3_CONNECT_TIMEOUT):
        yield "fs.s3a.connection.establish.timeout", _milliseconds(seconds)
    if seconds := properties.get(S3_REQUEST_TIMEOUT):
        yield "fs.s3a.connection.timeout", _milliseconds(seconds)


def _credentials(properties: dict[str, str]) -> Iterator[tuple[str, str]]:
    if property_as_bool(properties, S3_ANONYMOUS, False):
        yield _PROVIDER, f"{_PROVIDERS}.AnonymousAWSCredentialsProvider"
        return
    key = get_first_property_value(properties, S3_ACCESS_KEY_ID, AWS_ACCESS_KEY_ID)
    secret = get_first_property_value(properties, S3_SECRET_ACCESS_KEY, AWS_SECRET_ACCESS_KEY)
    token = get_first_property_value(properties, S3_SESSION_TOKEN, AWS_SESSION_TOKEN)
    role = get_first_property_value(properties, S3_ROLE_ARN, AWS_ROLE_ARN)
    if key and secret:
        yield "fs.s3a.access.key", key
        yield "fs.s3a.secret.key", secret
        # Else a file system with the last credentials would be used until the process ends.
        yield "fs.s3a.impl.disable.cache", "true"
    if role:
        yield "fs.s3a.assumed.role.arn", role
        yield _PROVIDER, f"{_PROVIDERS}.auth.AssumedRoleCredentialProvider"
    elif key and secret and token:
        yield "fs.s3a.session.token", token
        yield _PROVIDER, f"{_PROVIDERS}.TemporaryAWSCredentialsProvider"
    elif key and secret:
        yield _PROVIDER, f"{_PROVIDERS}.SimpleAWSCredentialsProvider"


def _milliseconds(seconds: str) -> str:
    return str(int(float(seconds) * 1000))
