"""Hive's metastore as a catalog that threads share, and whose silence ends.

pyiceberg's catalog has one connection. Two threads would read each other's answers: the metadata of
one table under the name of another.
"""

import threading
from types import TracebackType
from typing import Any

from hive_metastore.ThriftHiveMetastore import Client
from pyiceberg.catalog import URI
from pyiceberg.catalog.hive import (
    HIVE_KERBEROS_AUTH,
    HIVE_KERBEROS_AUTH_DEFAULT,
    HIVE_KERBEROS_SERVICE_NAME,
    HIVE_KERBEROS_SERVICE_NAME_DEFAULT,
    HiveCatalog,
    _HiveClient,
)
from pyiceberg.utils.properties import property_as_bool
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TTransportException

#: between two bytes of an answer
_SILENCE_SECONDS = 60.0


class SharedHiveCatalog(HiveCatalog):
    """As pyiceberg's, with a connection for each thread's calls.

    Of several addresses in ``uri``, the first one is taken that answers.
    """

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> _HiveClient:
        return _Connections(properties)  # type: ignore[return-value]


class _Connections:
    """Opens a connection for each block, in which pyiceberg makes its calls."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._addresses = properties[URI].split(",")
        self._given = (
            properties.get("ugi"),
            property_as_bool(properties, HIVE_KERBEROS_AUTH, HIVE_KERBEROS_AUTH_DEFAULT),
            properties.get(HIVE_KERBEROS_SERVICE_NAME, HIVE_KERBEROS_SERVICE_NAME_DEFAULT),
        )
        self._of_thread = threading.local()

    def __enter__(self) -> Client:
        for left, address in enumerate(self._addresses, 1 - len(self._addresses)):
            connection = _Connection(address.strip(), *self._given)
            try:
                client = connection.__enter__()
            except TTransportException:
                if not left:
                    raise
                continue
            self._opened().append(connection)
            return client
        raise AssertionError("unreachable")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened().pop().__exit__(kind, error, trace)

    def _opened(self) -> list[_HiveClient]:
        """The thread's own, the innermost block's last."""
        found: list[_HiveClient] = self._of_thread.__dict__.setdefault("opened", [])
        return found


class _Connection(_HiveClient):
    def _init_thrift_transport(self) -> Any:
        transport = super()._init_thrift_transport()
        # With Kerberos it has another name.
        names = ("_TBufferedTransport__trans", "transport")
        for socket in (getattr(transport, name, None) for name in names):
            if isinstance(socket, TSocket):
                socket.setTimeout(_SILENCE_SECONDS * 1000)
        return transport
