"""Hadoop's settings for S3 are those of pyiceberg's properties, and nothing is sent beside them."""

from types import MappingProxyType

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from arctic_orchestration.lake.file_access import sendable_io
from arctic_orchestration.lake.s3_settings import hadoop_settings

KEYS = MappingProxyType({"s3.access-key-id": "key", "s3.secret-access-key": "secret"})
_GIVEN = "fs.s3a.aws.credentials.provider"
_PACKAGE = "org.apache.hadoop.fs.s3a"


def test_nothing_is_set_that_is_not_said() -> None:
    """Both then use their default chains."""
    assert hadoop_settings({}) == {}
    assert hadoop_settings({"uri": "sqlite://", "warehouse": "s3://lake"}) == {}


def test_another_store_than_amazons() -> None:
    """Its buckets are in the path, unless the properties say otherwise."""
    plain = {"s3.endpoint": "http://127.0.0.1:9000", "s3.region": "eu-1"}
    assert hadoop_settings(plain) == {
        "fs.s3a.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.endpoint.region": "eu-1",
    }
    virtual = hadoop_settings(plain | {"s3.force-virtual-addressing": "true"})
    assert virtual["fs.s3a.path.style.access"] == "false"
    secure = hadoop_settings({"s3.endpoint": "https://store"})
    assert secure["fs.s3a.connection.ssl.enabled"] == "true"


@pytest.mark.parametrize(
    ("more", "provider"),
    [
        ({}, f"{_PACKAGE}.SimpleAWSCredentialsProvider"),
        ({"s3.session-token": "token"}, f"{_PACKAGE}.TemporaryAWSCredentialsProvider"),
        ({"s3.role-arn": "arn"}, f"{_PACKAGE}.auth.AssumedRoleCredentialProvider"),
        ({"s3.anonymous": "true"}, f"{_PACKAGE}.AnonymousAWSCredentialsProvider"),
    ],
)
def test_credentials(more: dict[str, str], provider: str) -> None:
    """Each kind has its provider; the names of all AWS services do, too."""
    assert hadoop_settings({**KEYS, **more})[_GIVEN] == provider
    shared = {key.replace("s3.", "client."): value for key, value in KEYS.items()}
    found = hadoop_settings(shared)
    assert (found["fs.s3a.access.key"], found["fs.s3a.secret.key"]) == ("key", "secret")


def test_seconds_become_milliseconds() -> None:
    found = hadoop_settings({"s3.connect-timeout": "1.5", "s3.request-timeout": "60"})
    assert found["fs.s3a.connection.establish.timeout"] == "1500"
    assert found["fs.s3a.connection.timeout"] == "60000"


def test_workers_receive_the_stores_properties_alone() -> None:
    """The catalog's address may have a password, and its token is nobody else's."""
    catalogs = {"uri": "postgresql://me:password@host/lake", "token": "t", "auth.manager": object()}
    sent = sendable_io(PyArrowFileIO({**KEYS, **catalogs}))
    assert sent.properties == dict(KEYS)
