"""pyiceberg's REST catalog, with time limits: without, it waits for ever for a silent server."""

import time
from functools import partial
from typing import Any

import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import OAuth2AuthManager, OAuth2TokenProvider
from requests import Session

#: The properties of the limits, in seconds; the second one is between two bytes of an answer.
CONNECT_TIMEOUT, REQUEST_TIMEOUT = "rest.connect-timeout", "rest.request-timeout"
_CONNECT_SECONDS, _REQUEST_SECONDS = 5.0, 60.0


class TimedRestCatalog(RestCatalog):
    """A REST catalog whose requests end, also those to a server of tokens.

    A commit that was not answered in time may have been made.
    """

    def _config_headers(self, session: Session) -> None:
        # Called first of all that sends requests.
        super()._config_headers(session)
        sending: Any = session
        sending.request = partial(session.request, timeout=self._limits)

    def _create_session(self) -> Session:
        session = super()._create_session()
        if isinstance(self._auth_manager, OAuth2AuthManager):
            provider: Any = self._auth_manager.token_provider
            provider._refresh_token = partial(_refresh_token, provider, self._limits)
        return session

    @property
    def _limits(self) -> tuple[float, float]:
        return (
            float(self.properties.get(CONNECT_TIMEOUT, _CONNECT_SECONDS)),
            float(self.properties.get(REQUEST_TIMEOUT, _REQUEST_SECONDS)),
        )


def _refresh_token(provider: OAuth2TokenProvider, limits: tuple[float, float]) -> None:
    """Gets a token as the provider itself does, which sets no limit."""
    form = {"grant_type": "client_credentials"}
    if provider.scope:
        form["scope"] = provider.scope
    headers = {"Authorization": provider._client_secret_header}
    answer = requests.post(provider.token_url, data=form, headers=headers, timeout=limits)
    answer.raise_for_status()
    found = answer.json()
    lasts = found.get("expires_in", provider.expires_in)
    if "access_token" not in found or lasts is None:
        raise ValueError(f"{provider.token_url}: expected an answer with access_token, expires_in")
    # Numbers of a file are texts here.
    lasts, margin = float(lasts), float(provider.refresh_margin)
    provider._expires_at = int(time.monotonic() + lasts - margin)
    provider._token = found["access_token"]
