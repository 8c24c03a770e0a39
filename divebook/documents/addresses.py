"""Whether an address is one of the public internet, also where another one is packed into it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_OWN_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")
"""Of a network's own: what is behind it is that network's choice."""
_OF_THE_HOST = ipaddress.ip_address("168.63.129.16")
"""Public by its number; in a cloud it is what tells a machine its own secrets."""


def is_public(address: str) -> bool:
    """Tell whether an address, with or without a zone (``fe80::1%eth0``), is public, with all that are packed into it.

    Raises
    ------
    ValueError
        It is no address.
    """
    return all(map(_is_public, _meant(address)))


def _meant(address: str) -> Iterable[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Return an address, or those that are packed into it; raises ValueError."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return [found]
    inside = [found.ipv4_mapped, found.sixtofour, *(found.teredo or ())]
    if found in _NAT64:
        inside.append(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF))
    packed = [part for part in inside if part is not None]
    return packed or [found]


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Tell whether an address is of the internet; IPv6 has ranges that are neither private nor of anybody."""
    if isinstance(address, ipaddress.IPv6Address) and (address.is_site_local or address in _OWN_NAT64):
        return False
    is_special = address.is_multicast or address.is_reserved or address == _OF_THE_HOST
    return address.is_global and not is_special
