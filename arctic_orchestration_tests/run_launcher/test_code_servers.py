"""Which process is the code server of a location that is reached over TCP."""

import socket
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from arctic_orchestration.run_launcher.configuration import LauncherRules
from arctic_orchestration.run_launcher.host_client import HostUnavailable, located
from arctic_orchestration_tests.postgres import PostgresServer

#: an address of this machine besides loopback, as a container has one
OWN = [
    address.address
    for interface in psutil.net_if_addrs().values()
    for address in interface
    if address.family is socket.AF_INET and not address.address.startswith("127.")
]


class _Found(Exception):
    """The process was accepted: what else a host needs was asked for."""


class Location:
    """A code server of this process."""

    socket = None
    executable_path: str | None = None

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    @property
    def name(self) -> str:
        raise _Found


def look_up(location: Location) -> None:
    located(cast(Any, location), cast(Any, SimpleNamespace(get_ref=None)), LauncherRules())


@pytest.fixture
def port() -> Any:
    with socket.socket() as server:
        server.bind(("0.0.0.0", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", *OWN[:1]])
def test_a_host_that_is_this_machine_has_its_process_here(host: str, port: int) -> None:
    with pytest.raises(_Found):
        look_up(Location(host, port))


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_a_host_elsewhere_is_not_hosted_whatever_listens_here(host: str, port: int) -> None:
    with pytest.raises(HostUnavailable, match="is not a process of this user on this machine"):
        look_up(Location(host, port))


def test_a_process_that_is_no_python_is_not_the_code_server(
    postgres_server: PostgresServer,
) -> None:
    """As what forwards a port of a container."""
    with pytest.raises(HostUnavailable, match="is no Python, but postgres"):
        look_up(Location("localhost", postgres_server.port))
