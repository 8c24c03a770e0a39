"""IP addresses: those of a host name, and which of them are public."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_OWN_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")
"""Addresses that a private network can translate to any of its own addresses."""
_OF_THE_HOST = ipaddress.ip_address("168.63.129.16")
"""Address with a public number at which a cloud service gives secrets to the machine."""


def is_public(address: str) -> bool:
    """Return whether an IP address is public, together with any other address embedded in it, such as an IPv4 address
    in an IPv6 address. A zone (``fe80::1%eth0``) is ignored.

    Example: ``::ffff:127.0.0.1`` embeds the loopback, so it is not public.

    Raises
    ------
    ValueError
        It is not an address.
    """
    return all(map(_is_public, _embedded_addresses(address)))


def _embedded_addresses(address: str) -> Iterable[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Return the IPv4 addresses that are embedded in an IPv6 address; without any, the address itself. Raises
    ValueError if it is not an IP address.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv4Address):
        return [parsed]
    # Three ways to write an IPv4 address as IPv6: mapped (``::ffff:1.2.3.4``), 6to4 (``2002:0102:0304::``) and Teredo,
    # which embeds two, server and client.
    candidates = [parsed.ipv4_mapped, parsed.sixtofour, *(parsed.teredo or ())]
    if parsed in _NAT64:
        # The last 32 bits are the IPv4 address.
        candidates.append(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF))
    embedded = [part for part in candidates if part is not None]
    return embedded or [parsed]


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether a single IP address belongs to the public internet. Some IPv6 ranges are not public although
    Python does not consider them private.
    """
    if isinstance(address, ipaddress.IPv6Address) and (address.is_site_local or address in _OWN_NAT64):
        return False
    is_special = address.is_multicast or address.is_reserved or address == _OF_THE_HOST
    return address.is_global and not is_special


def ip_addresses(host: str) -> list[str]:
    """Resolve a host name to its IP addresses, with the resolver of this machine. Blocks the thread."""
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))
