"""IP addresses and ports, each in one spelling alone, so that equal ones are equal text.

Envoy compares the address that a decision names with those of its cluster as text, so the spelling must be Envoy's own:
the shortest form of RFC 5952.
"""

import ipaddress
import re

_PLACE = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<v4>[^:]+)):(?P<port>[0-9]{1,5})", re.ASCII)


def ip(text: str) -> str:
    """Return the IP address in ``text`` in its one spelling.

    An IPv4 address in IPv6's clothes (``::ffff:10.0.0.7``) is that IPv4 address.

    Raises:
        ValueError: it is not an IP address, or one with a zone, which means something on one machine alone.
    """
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise ValueError("an address with a zone")
        address = address.ipv4_mapped or address
    return str(address)


def is_address(text: str) -> bool:
    """Return whether ``text`` is an IP address, and not a name."""
    try:
        ip(text)
    except ValueError:
        return False
    return True


def ip_and_port(text: str) -> str:
    """Return the ``ip:port`` in ``text`` in its one spelling, IPv6 in brackets.

    Raises:
        ValueError: it is not an ``ip:port`` that one can connect to.
    """
    parts = _PLACE.fullmatch(text)
    if parts is None or (parts["v6"] and ":" not in parts["v6"]):
        raise ValueError("not ip:port")
    address, port = ip(parts["v6"] or parts["v4"]), int(parts["port"])
    if not 1 <= port <= 65535 or is_unspecified(address):
        raise ValueError("nothing to connect to")
    return joined(address, port)


def joined(address: str, port: int) -> str:
    """Return ``ip:port``, IPv6 in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def split(place: str) -> tuple[str, int]:
    """Return the address and the port of an ``ip:port``."""
    address, _, port = place.rpartition(":")
    return address.strip("[]"), int(port)


def is_unspecified(address: str) -> bool:
    """Return whether ``address`` means every address of the machine (0.0.0.0 or ::)."""
    return ipaddress.ip_address(address).is_unspecified


def overlap(one: str, other: str) -> bool:
    """Return whether one port on both addresses would be one and the same."""
    same_family = (":" in one) == (":" in other)
    return one == other or (same_family and (is_unspecified(one) or is_unspecified(other)))


def is_loopback(address: str) -> bool:
    """Return whether ``address`` stays on its machine."""
    return ipaddress.ip_address(address).is_loopback
