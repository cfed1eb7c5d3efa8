"""``arctic serve``: the server that it starts."""

from collections.abc import Callable
from typing import Any

import pytest
import uvicorn

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.service.access import AccessRules
from arctic_orchestration.service.cli.serve import is_loopback
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.cli.conftest import Outcome, arctic

__all__ = ["arctic"]


@pytest.mark.parametrize(
    ("arguments", "loopback", "require_token", "shown"),
    [
        ((), True, False, "http://127.0.0.1:3001/api/v1"),
        (("--require-token", "--port", "3002"), True, True, "http://127.0.0.1:3002/api/v1"),
        (("--host", "0.0.0.0"), False, False, "http://0.0.0.0:3001/api/v1"),
        (("--host", "::1"), True, False, "http://[::1]:3001/api/v1"),
    ],
)
def test_the_address_decides_whether_it_is_open(
    database: Database,
    arctic: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    loopback: bool,
    require_token: bool,
    shown: str,
) -> None:
    """And no header of a proxy is taken for the address of a client."""
    served: dict[str, Any] = {}
    monkeypatch.setattr(uvicorn, "run", lambda app, **options: served.update(options, app=app))
    result = arctic("serve", *arguments)
    assert (result.code, shown in result.err) == (0, True), result.err
    rules = served["app"].state.service.rules
    assert (rules.loopback, rules.require_token) == (loopback, require_token)
    assert served["proxy_headers"] is False


@pytest.mark.parametrize(
    ("option", "expected"),
    [("--tls-key", "expected --tls-certificate"), ("--tls-certificate", "expected a PEM file")],
)
def test_a_key_alone_and_what_is_no_certificate_are_refused(
    database: Database, arctic: Callable[..., Outcome], tmp_path: Any, option: str, expected: str
) -> None:
    """By the option; nothing is served."""
    file = tmp_path / "some.pem"
    file.write_text("no certificate")
    result = arctic("serve", option, str(file))
    assert result.code == 2
    text = " ".join(result.err.split())
    assert option in text
    assert expected in text


def test_a_certificate_serves_https(
    database: Database,
    arctic: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    """With its key; without both it is http."""
    served: list[tuple[Any, Any]] = []

    def run(_: object, **options: Any) -> None:
        served.append((options.get("ssl_certfile"), options.get("ssl_keyfile")))

    monkeypatch.setattr(uvicorn, "run", run)
    files = [tmp_path / "certificate.pem", tmp_path / "key.pem"]
    for file in files:
        file.write_text("")
    options = ("--tls-certificate", str(files[0]), "--tls-key", str(files[1]))
    assert "https://127.0.0.1:3001/api/v1" in arctic("serve", *options).err
    assert "http://127.0.0.1:3001/api/v1" in arctic("serve").err
    assert served == [tuple(files), (None, None)]


@pytest.mark.parametrize(
    ("scopes", "group"),
    [("ops=*:read; staff=*:read; ops=jobs:write", "ops"), ("=*:read", ""),
     ("data ops=*:write", "data ops"), ("a,b=*:write", "a,b"), ("all=*:read; ops", "ops")],
)  # fmt: skip
def test_a_group_that_would_have_other_scopes_is_refused(scopes: str, group: str) -> None:
    """The last of two would count; a name with a space is that of two groups in Remote-Groups."""
    environment = {"ARCTIC_GROUP_SCOPES": scopes}
    with pytest.raises(InvalidInput) as refusal:
        AccessRules.from_environment(loopback=True, environment=environment)
    assert (refusal.value.field, refusal.value.value) == ("ARCTIC_GROUP_SCOPES", group)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("127.0.0.7", True), ("::1", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("arctic.example", False), ("", False)],
)  # fmt: skip
def test_only_addresses_of_this_machine_alone_are_loopback(host: str, loopback: bool) -> None:
    """A name may resolve to any address."""
    assert is_loopback(host) is loopback
