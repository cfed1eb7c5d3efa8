"""Hive's metastore as a catalog that threads share, and whose silence ends.

pyiceberg's catalog has one connection. Two threads would read each other's answers: the metadata of
one table under the name of another.
"""

import threading
from urllib.parse import urlsplit

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
from thrift.transport.TTransport import (
    TBufferedTransport,
    TSaslClientTransport,
    TTransportBase,
    TTransportException,
)

#: until an address accepts a connection, and between two bytes of an answer
_CONNECT_SECONDS, _SILENCE_SECONDS = 5.0, 60.0


class SharedHiveCatalog(HiveCatalog):
    """As pyiceberg's, with a connection for each thread's calls.

    Of several addresses in ``uri``, the first one is taken that accepts a connection.

    Errors:
        ValueError: an address is not of the form ``thrift://host:port``.
    """

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> _HiveClient:
        return _Connections(properties)  # type: ignore[return-value]


class _Connections:
    """Opens a connection for each block, in which pyiceberg makes its calls."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._addresses = [one.strip() for one in properties.get(URI, "").split(",")]
        for address in self._addresses:
            _require_address(address)
        self._given = (
            properties.get("ugi"),
            property_as_bool(properties, HIVE_KERBEROS_AUTH, HIVE_KERBEROS_AUTH_DEFAULT),
            properties.get(HIVE_KERBEROS_SERVICE_NAME, HIVE_KERBEROS_SERVICE_NAME_DEFAULT),
        )
        self._of_thread = threading.local()

    def __enter__(self) -> Client:
        for left, address in enumerate(self._addresses, 1 - len(self._addresses)):
            connection = _Connection(address, *self._given)
            try:
                client = connection.__enter__()
            except TTransportException:
                if not left:
                    raise
                continue
            self._opened().append(connection)
            return client
        raise AssertionError("unreachable")

    def __exit__(self, *error: object) -> None:
        self._opened().pop().__exit__(*error)  # type: ignore[arg-type]

    def _opened(self) -> list[_HiveClient]:
        """The thread's own, the innermost block's last."""
        found: list[_HiveClient] = self._of_thread.__dict__.setdefault("opened", [])
        return found


class _Connection(_HiveClient):
    def _init_thrift_transport(self) -> TTransportBase:
        parts = urlsplit(self._uri)
        socket = _Socket(parts.hostname, parts.port)
        if self._kerberos_auth:
            service = self._kerberos_service_name
            return TSaslClientTransport(socket, host=parts.hostname, service=service)
        return TBufferedTransport(socket)


class _Socket(TSocket):  # type: ignore[misc]
    def open(self) -> None:
        self.setTimeout(_CONNECT_SECONDS * 1000)
        super().open()
        self.setTimeout(_SILENCE_SECONDS * 1000)


def _require_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        valid = parts.scheme == "thrift" and parts.hostname and parts.port is not None
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(
            f"uri: expected thrift://host:port, or several with commas, not {address!r}"
        )
