"""Errors that leave it unknown whether a call took effect."""

from __future__ import annotations

from divebook.engine.retries import names_of

_UNKNOWN = frozenset(
    {
        "ConnectionError",  # Python's own, reset and broken pipe included, and that of requests
        "NetworkError",  # httpx: reading or writing broke off
        "OutcomeUnknownError",
        "ProtocolError",  # httpx, urllib3: the other side hung up in the middle
        "Timeout",  # requests
        "TimeoutError",  # Python's own, that of asyncio and concurrent.futures, aiohttp, urllib3
        "TimeoutException",  # httpx
    }
)
_NEVER_SENT = frozenset(
    {
        "ConnectError",  # httpx
        "ConnectTimeout",  # httpx, requests
        "ConnectTimeoutError",  # urllib3
        "ConnectionRefusedError",
        "PoolTimeout",  # httpx
    }
)


def leaves_outcome_unknown(error: BaseException) -> bool:
    """Return whether a call that raised this may have taken effect: it timed out, or its connection broke.

    HTTP libraries have errors of their own for that, and importing them all to compare would cost more than it is
    worth: they are known by the names of their classes. What an error was raised from, and the members of a group,
    count as well. A connection that was refused, or could not be made in time, carried nothing.

    Examples
    --------
    >>> leaves_outcome_unknown(ConnectionResetError()), leaves_outcome_unknown(ConnectionRefusedError())
    (True, False)
    """
    seen: list[BaseException] = []
    left = [error]
    while left:
        link = left.pop()
        names = set(names_of(link))
        if link in seen or names & _NEVER_SENT:
            continue
        if names & _UNKNOWN:
            return True
        seen.append(link)
        left += link.exceptions if isinstance(link, BaseExceptionGroup) else ()
        left += [link.__cause__] if link.__cause__ is not None else ()
    return False
