"""The check of the object store in ``arctic doctor``: what pyiceberg's properties of S3 lack."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from arctic_orchestration.console.findings import Finding, good, warning
from arctic_orchestration.settings import Settings

_CHECK = "object store"
_S3 = ("s3://", "s3a://", "s3n://")
_REGIONS = ("s3.region", "client.region")
_KEYS = ("s3.access-key-id", "client.access-key-id")
_SECRETS = ("s3.secret-access-key", "client.secret-access-key")
#: with one of these, AWS's default chain finds credentials
_CHAIN = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN")


def object_store() -> list[Finding]:
    """Checks the catalog's properties of S3, without a request; none if its tables are elsewhere.

    A REST catalog may vend what is missing.
    """
    from pyiceberg.utils.config import Config

    properties = Config().get_catalog_config(Settings.from_environment().catalog) or {}
    texts = {key: str(value) for key, value in properties.items()}
    if not texts.get("warehouse", "").startswith(_S3) and "s3.endpoint" not in texts:
        return []
    problems = list(_problems(texts))
    return problems or [good(_CHECK, _way())]


def _problems(properties: Mapping[str, str]) -> Iterator[Finding]:
    key, secret = _first(properties, _KEYS), _first(properties, _SECRETS)
    if (key is None) != (secret is None):
        lacking = "s3.access-key-id" if key is None else "s3.secret-access-key"
        yield warning(
            _CHECK, f"{lacking} is missing beside the other one", f"set {lacking}, or neither"
        )
    elif key is None and not _vends(properties) and not _has_chain():
        yield warning(
            _CHECK,
            "no credentials: not in the catalog's properties, and AWS's default chain has none "
            "in the environment",
            "set s3.access-key-id and s3.secret-access-key; the role of a machine needs neither",
        )
    if _first(properties, _REGIONS) is None and not _vends(properties):
        yield warning(
            _CHECK,
            "s3.region is missing: pyiceberg asks Amazon for the region of each bucket",
            "set s3.region; for other stores us-east-1 will do",
        )


def _way() -> str:
    """Describes how Spark will get at the files."""
    # As far as it shows without a JVM: --conf spark.jars.packages may add the jar.
    import pyspark

    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    if list(jars.glob("hadoop-aws-*.jar")):
        return "S3; Spark reads and writes it itself, by hadoop-aws"
    return (
        "S3; files pass through Arrow in Spark's workers, unless hadoop-aws is added with "
        "spark.jars.packages"
    )


def _vends(properties: Mapping[str, str]) -> bool:
    uri, kind = properties.get("uri", ""), properties.get("type", "")
    return kind.lower() == "rest" or (not kind and uri.startswith("http"))


def _has_chain() -> bool:
    files = (Path.home() / ".aws" / "credentials", Path.home() / ".aws" / "config")
    return any(name in os.environ for name in _CHAIN) or any(map(Path.exists, files))


def _first(properties: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((properties[name] for name in names if properties.get(name)), None)
