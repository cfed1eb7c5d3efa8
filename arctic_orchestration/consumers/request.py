"""The arguments of ``consume``, checked before anything is done."""

from datetime import timedelta
from typing import Any

from arctic_orchestration.consumers.partition import matcher
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.state.dialect import storable


def check_request(
    *,
    limit: object = None,
    where: Any = None,
    wait: object = None,
    poll: object = timedelta(seconds=1),
    owner: object = None,
) -> None:
    """Checks the arguments; see :meth:`PartitionConsumer.consume`.

    Errors:
        InvalidInput: names the first invalid value.
    """
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidInput("limit", limit, "a whole number of at least 1")
    matcher(where)
    if wait is not None and not (isinstance(wait, timedelta) and wait >= timedelta(0)):
        raise InvalidInput("wait", wait, "a timedelta of no less than 0, or None")
    if not (isinstance(poll, timedelta) and poll > timedelta(0)):
        raise InvalidInput("poll", poll, "a timedelta of more than 0")
    if owner is not None and not (isinstance(owner, str) and storable(owner) == owner):
        raise InvalidInput("owner", owner, "a text without NUL and halves of surrogate pairs")
