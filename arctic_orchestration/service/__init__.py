"""The service: the controls and views of the features over HTTP, with no rules of its own.

A request passes :mod:`~.guard` (host and origin), is given a :class:`~.access.Caller` by its token
or proxy, and reaches a route that declares its scope. Every change is one transaction, together
with its record in the audit log.
"""
