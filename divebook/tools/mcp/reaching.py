"""Servers over HTTP are reached at addresses that were checked, as pages are (`divebook.documents.fetching`)."""

from __future__ import annotations

import socket
from urllib.request import getproxies

import anyio.to_thread
import httpx2

from divebook.documents.policy import ADDRESSES, Policy


def addresses_of(policy: Policy, host: str) -> list[str]:
    """Return the addresses that a host stands for; raises `SetupError` if any of them may not be reached."""
    policy.host(host)
    found = [str(place[0]) for *_, place in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    for address in found:
        policy.address(address, host)
    return list(dict.fromkeys(found))


def checked_transport(policy: Policy) -> httpx2.AsyncBaseTransport | None:
    """Return what connects to checked addresses only; None where all are allowed, or a proxy looks names up."""
    return None if ADDRESSES in policy.allowed or getproxies() else _Checked(policy)


class _Checked(httpx2.AsyncHTTPTransport):
    """Looks a name up once and connects to what was found: what a name server says the next time does not matter.

    Shown by test_a_name_that_leads_to_this_machine_the_second_time_is_not_connected_to.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._policy = policy

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Make a request of the first address that answers; the server is still called and verified by its name."""
        host = request.url.host
        *others, last = await anyio.to_thread.run_sync(addresses_of, self._policy, host)
        for address in others:
            try:
                return await super().handle_async_request(_at(address, request))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await super().handle_async_request(_at(last, request))


def _at(address: str, request: httpx2.Request) -> httpx2.Request:
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address.partition("%")[0]),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )
