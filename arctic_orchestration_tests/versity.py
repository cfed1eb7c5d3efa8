"""A real S3 server on loopback, Versity's gateway to a directory; it checks signatures.

``sh tools/ensure_s3_server`` builds it with Go.
"""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow.fs import S3FileSystem

from arctic_orchestration_tests.object_store import BUCKET, KEY, REGION, SECRET
from arctic_orchestration_tests.patience import until

_PROGRAM = Path(__file__).parents[1] / "build" / "s3-server" / "versitygw"
ABSENT = "Versity's S3 server is not there: sh tools/ensure_s3_server builds it with Go"


def is_absent() -> bool:
    """Whether it was not built."""
    return not _PROGRAM.exists()


@contextmanager
def versity(directory: Path) -> Iterator[dict[str, str]]:
    """Starts a server on a directory; yields pyiceberg's properties for it."""
    for name in ("objects", "attributes"):
        (directory / name).mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    command: list[str | Path] = [_PROGRAM, "--port", address, "--access", KEY, "--secret", SECRET]
    command += ["posix", "--sidecar", directory / "attributes", directory / "objects"]
    with (directory / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        files = S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region=REGION,
            endpoint_override=f"http://{address}",
            allow_bucket_creation=True,
        )

        def is_there() -> bool:
            try:
                files.create_dir(BUCKET)
            except OSError:
                assert server.poll() is None, (directory / "server.log").read_text()
                return False
            return True

        until(is_there, "the S3 server answers")
        yield {
            "s3.endpoint": f"http://{address}",
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": REGION,
        }
    finally:
        server.kill()
        server.wait()
