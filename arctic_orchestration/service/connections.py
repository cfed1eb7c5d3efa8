"""Connections that are cut off when their client is too slow.

uvicorn waits for ever for the rest of a request's head, and for a client to take its answer. Each
such connection costs a file, and a request that is being answered. The time of a body is limited
where it is read: :mod:`~.bodies`. What arrives of a body after its answer is not kept, for as long
as a head may take: a client that still sends can read the answer.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    # The faster one, if it is installed.
    Protocol = AutoHTTPProtocol

#: how long the head of a request may take to arrive, from its first byte or the connection on
HEAD_SECONDS = 30.0
#: how long a client may take nothing of an answer
TAKEN_SECONDS = 30.0


class ImpatientProtocol(Protocol):
    """HTTP of uvicorn, for one connection."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._head: asyncio.TimerHandle | None = None
        self._taken: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head = self.loop.call_later(HEAD_SECONDS, self._cut_off)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._head = _without(self._head)
        elif self._head is None:
            self._head = self.loop.call_later(HEAD_SECONDS, self._cut_off)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taken = self._taken or self.loop.call_later(TAKEN_SECONDS, self._cut_off)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taken = _without(self._taken)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        # It closes when the last answer is taken.
        self._taken = self._taken or self.loop.call_later(TAKEN_SECONDS, self._cut_off)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head, self._taken = _without(self._head), _without(self._taken)
        super().connection_lost(exc)

    def _cut_off(self) -> None:
        # A websocket is another protocol's.
        if self.transport.get_protocol() is self:
            self.transport.abort()


def _without(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancels a timer; returns that there is none."""
    if timer is not None:
        timer.cancel()
    return None
