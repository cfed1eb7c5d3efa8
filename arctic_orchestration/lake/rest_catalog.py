"""pyiceberg's REST catalog, with time limits: without, it waits for ever for a silent server."""

from functools import partial
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import Session

#: The properties of the limits, in seconds; the second one is between two bytes of an answer.
CONNECT_TIMEOUT, REQUEST_TIMEOUT = "rest.connect-timeout", "rest.request-timeout"
_CONNECT_SECONDS, _REQUEST_SECONDS = 5.0, 60.0


class TimedRestCatalog(RestCatalog):
    """A REST catalog whose requests end.

    A commit that was not answered in time may have been made.
    """

    def _config_headers(self, session: Session) -> None:
        # Called first of all that sends requests.
        super()._config_headers(session)
        limits = (
            float(self.properties.get(CONNECT_TIMEOUT, _CONNECT_SECONDS)),
            float(self.properties.get(REQUEST_TIMEOUT, _REQUEST_SECONDS)),
        )
        sending: Any = session
        sending.request = partial(session.request, timeout=limits)
