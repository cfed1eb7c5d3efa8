"""How Spark gets at the files of a table: by a file system of its own, or through Arrow.

PySpark has file systems for local files and HDFS. Those of object stores are in further jars, such
as ``hadoop-aws``, which a user adds with ``spark.jars.packages``. Without the jar, Spark's Python
workers read and write the files with pyiceberg's ``FileIO``, and Spark gets the rows from them: see
:mod:`~arctic_orchestration.lake.arrow_rows`.

The settings come from one place, the catalog's properties of pyiceberg, with those that the catalog
vends for the table. Spark's own file system for S3 receives them with each read and write.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyiceberg.io import FileIO
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from arctic_orchestration.lake.connect import is_over_connect
from arctic_orchestration.lake.replacing.path_matching import form_of
from arctic_orchestration.lake.s3_settings import S3_SCHEMES, hadoop_settings

_S3A = "s3a"
#: The beginnings of properties of stores; the others are the catalog's, and may have its secrets.
_OF_STORES = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "client.", "buffer-size", "DEFAULT_")
#: a store's requests are then signed by the catalog
_SIGNER = "s3.signer"
_S3A_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"


@dataclass(frozen=True, kw_only=True)
class FileAccess:
    """The way from a Spark session to some files."""

    #: why Spark cannot read and write the files itself; none: it can
    missing: str | None = None
    #: whether Spark's scheme ``s3a`` stands for the scheme of the paths
    by_s3a: bool = False
    #: Hadoop's settings, for Spark's readers and writers
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def by_spark(self) -> bool:
        """Whether Spark reads and writes the files itself."""
        return self.missing is None

    def path(self, path: str) -> str:
        """Returns the path in the form that Spark reads and writes."""
        return f"{_S3A}:{path.partition(':')[2]}" if self.by_s3a else path


def file_access(spark: SparkSession, io: FileIO, paths: Iterable[str]) -> FileAccess:
    """Determines how the session gets at the files; a few calls to the JVM for each scheme.

    On a Connect server, which cannot be asked, files on S3 are read and written through Arrow.
    """
    schemes = {form_of(path).partition(":")[0].lower() for path in paths} - {"", "file"}
    if not schemes:
        return FileAccess()
    on_s3 = schemes & S3_SCHEMES
    if is_over_connect(spark):
        if on_s3:
            return FileAccess(missing=_missing(on_s3, "a Connect server cannot be asked for one"))
        return FileAccess()
    classes = {scheme: _file_system(spark, scheme) for scheme in schemes}
    lacking = {scheme for scheme, name in classes.items() if name is None}
    if lacking <= S3_SCHEMES and (not lacking or _file_system(spark, _S3A) == _S3A_CLASS):
        settings = hadoop_settings(io.properties) if on_s3 else {}
        return FileAccess(by_s3a=bool(lacking), options=settings)
    advice = ", which org.apache.hadoop:hadoop-aws has" if lacking & S3_SCHEMES else ""
    return FileAccess(missing=_missing(lacking, advice))


def sendable_io(io: FileIO) -> FileIO:
    """Returns the ``FileIO`` for Spark's workers: with the store's properties alone."""
    if not type(io).__module__.startswith("pyiceberg.io.") or _SIGNER in io.properties:
        return io
    properties = {key: value for key, value in io.properties.items() if key.startswith(_OF_STORES)}
    return type(io)(properties)


def _missing(schemes: Iterable[str], why: str) -> str:
    named = ", ".join(f"{scheme}://" for scheme in sorted(schemes))
    return f"Spark has no file system for {named}{why if why.startswith(',') else f': {why}'}"


def _file_system(spark: SparkSession, scheme: str) -> str | None:
    """Returns the class of the driver's file system for a scheme; none: there is none."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    configuration = session.sessionState().newHadoopConf()
    try:
        found = jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
    except (Py4JError, PySparkException):
        return None
    return str(found.getName())
