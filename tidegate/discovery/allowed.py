"""Which addresses may be endpoints, whoever says so.

A directory that can be written to by others could otherwise point requests, and the scrapes of metrics, at the machine
itself or at a cloud's metadata service (169.254.169.254, which is link-local).
"""

import functools
import ipaddress
from collections.abc import Callable, Iterable

from tidegate import addresses
from tidegate.discovery.contract import MAX_ENDPOINTS


def allows(networks: Iterable[str]) -> Callable[[str], bool]:
    """Return what says whether an ``ip:port`` is in ``networks`` (CIDR).

    Without any, every address is allowed that other machines have: not loopback, link-local, multicast, unspecified
    or reserved.
    """
    named = tuple(ipaddress.ip_network(network) for network in networks)

    # Remembered, because all of a source's endpoints are looked at whenever one of them changes.
    @functools.lru_cache(maxsize=MAX_ENDPOINTS)
    def allowed(place: str) -> bool:
        address = ipaddress.ip_address(addresses.split(place)[0])
        if named:
            return any(address in network for network in named)
        return not (
            address.is_loopback
            or address.is_link_local
            or address.is_multicast
            or address.is_unspecified
            or address.is_reserved
        )

    return allowed


def why_not(networks: Iterable[str]) -> str:
    """Return why an address is not allowed, for whoever reads a log."""
    if any(True for _ in networks):
        return "not in a network that discovery.allow names"
    return "loopback, link-local, multicast or reserved; discovery.allow names networks that may be used"
