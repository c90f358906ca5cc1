"""Decides which addresses an HTTP call may reach, by what a name resolves to, never by how it is written."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

_CLOUD = frozenset({ip_address("168.63.129.16")})
"""Public addresses that serve internal services of a cloud."""
_NAT64 = ip_network("64:ff9b::/96")

Network = IPv4Network | IPv6Network


class AddressRefused(Exception):
    """A call would have reached a network that is not allowed."""


async def resolve(host: str, port: int, allowed: Sequence[Network]) -> str:
    """An allowed address of the host. Connect to it, because the name may resolve to another one the next time.

    Raises AddressRefused if any address of the host is private and in no allowed network, OSError if it has none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    for address in addresses:
        if not is_allowed(address, allowed):
            what = host if host == str(address) else f"{host} is {address}, which"
            raise AddressRefused(f"{what} is not a public address")
    if not addresses:
        raise OSError(f"{host} has no address")
    return str(addresses[0])


def is_allowed(address: IPv4Address | IPv6Address, allowed: Sequence[Network]) -> bool:
    """Whether an address is public, or in an allowed network."""
    inner = _inner(address)
    if any(each in network for each in {address, inner} for network in allowed if each.version == network.version):
        return True
    return inner.is_global and not inner.is_multicast and inner not in _CLOUD and not _is_tunnel(address)


def _inner(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address within an IPv6 address, if there is one."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def _is_tunnel(address: IPv4Address | IPv6Address) -> bool:
    return isinstance(address, IPv6Address) and address.teredo is not None
