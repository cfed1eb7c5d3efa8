"""Hive's metastore 2.3 on loopback, whose jars PySpark has, with a database in its memory."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hive_metastore.ttypes import ShowLocksRequest, UnlockRequest
from py4j.protocol import Py4JError
from pyiceberg.catalog.hive import _HiveClient

from arctic_orchestration_tests.jvms import JARS, jvm

_SETTINGS = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "datanucleus.connectionPoolingType": "NONE",
}
_CHUNK = 65536


@contextmanager
def hive_metastore(directory: Path) -> Iterator[str]:
    """Starts a metastore that writes its logs into the directory, and yields its address."""
    options = [f"-Dderby.system.home={directory}", f"-Djava.io.tmpdir={directory}"]
    with jvm(str(JARS / "*"), directory, options) as gateway:
        server, address = _server(gateway.jvm, directory)
        serving = threading.Thread(target=_serve, args=(server,), daemon=True)
        serving.start()
        yield address
        server.stop()
        serving.join()


def _server(java: Any, directory: Path) -> tuple[Any, str]:
    """As ``HiveMetaStore.startMetaStore`` makes it, which would listen to the whole network."""
    hive, thrift = java.org.apache.hadoop.hive, java.org.apache.thrift
    settings = hive.conf.HiveConf()
    for name, value in {
        **_SETTINGS,
        "hive.metastore.warehouse.dir": f"file:{directory}/warehouse",
    }.items():
        settings.set(name, value)
    metastore = hive.metastore
    # Derby gets the tables of locks by a method of Hive's own tests.
    metastore.txn.TxnDbUtil.setConfValues(settings)
    handler = metastore.HiveMetaStore.HMSHandler("metastore", settings, False)
    retrying = metastore.RetryingHMSHandler.getProxy(settings, handler, False)
    metastore.txn.TxnDbUtil.prepDb(settings)
    listening = thrift.transport.TServerSocket(java.java.net.InetSocketAddress("127.0.0.1", 0))
    parts = thrift.server.TThreadPoolServer.Args(listening)
    parts.processor(metastore.api.ThriftHiveMetastore.Processor(retrying))
    parts.protocolFactory(thrift.protocol.TBinaryProtocol.Factory())
    parts.transportFactory(thrift.transport.TTransportFactory())
    address = f"thrift://127.0.0.1:{listening.getServerSocket().getLocalPort()}"
    return thrift.server.TThreadPoolServer(parts), address


def _serve(server: Any) -> None:
    # It is cut off when its JVM ends.
    with suppress(Py4JError, OSError):
        server.serve()


def remove_locks(address: str) -> int:
    """Ends all locks, as the metastore does after five minutes; returns their number."""
    with _HiveClient(address) as client:
        found = client.show_locks(ShowLocksRequest()).locks
        for lock in found:
            client.unlock(UnlockRequest(lockid=lock.lockid))
    return len(found)


class LostAnswers:
    """Forwards connections to a metastore; can lose a request to it, or the answer."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("thrift://").partition(":")
        self._metastore = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"thrift://127.0.0.1:{self._listening.getsockname()[1]}"
        #: the name of the method whose next request or answer is lost, and which of them
        self.lost: bytes | None = None
        self.is_answer_lost = False
        self.is_lost = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, method: str, *, answer: bool) -> None:
        """Ends the connection with the next call of a method, before or after it is carried out."""
        self.lost, self.is_answer_lost = method.encode(), answer
        self.is_lost.clear()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._metastore)
                for one, other, is_answer in ((client, server, False), (server, client, True)):
                    threading.Thread(
                        target=self._forward, args=(one, other, is_answer), daemon=True
                    ).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while found := source.recv(_CHUNK):
                # A message begins with the name of its method.
                if self.lost and is_answer == self.is_answer_lost and self.lost in found[:200]:
                    self.lost = None
                    self.is_lost.set()
                    break
                target.sendall(found)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
