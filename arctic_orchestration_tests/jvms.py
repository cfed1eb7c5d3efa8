"""JVMs with the servers of tests, which end with their test or with this process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from arctic_orchestration.lake.java import find_java

#: those of PySpark
JARS = Path(pyspark.__file__).parent / "jars"


@contextmanager
def jvm(classpath: str, directory: Path, options: Sequence[str] = ()) -> Iterator[JavaGateway]:
    """Starts a JVM that works in the directory, and writes what it prints to a file there."""
    (py4j,) = JARS.glob("py4j-*.jar")
    with (directory / "jvm.log").open("w") as log:
        port = launch_gateway(
            jarpath=str(py4j),
            classpath=classpath,
            java_path=str(find_java().home / "bin" / "java"),
            javaopts=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options],
            die_on_exit=True,
            redirect_stdout=log,
            redirect_stderr=log,
            cwd=str(directory),
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        try:
            yield gateway
        finally:
            gateway.shutdown()
