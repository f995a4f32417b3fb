"""The endpoints that a request may go to, where somebody has narrowed them down."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate import addresses


@dataclass(frozen=True, slots=True)
class Subset:
    """Some endpoints, by name; ``address in subset`` tells whether an ``ip:port`` is one of them.

    Attributes:
        places: as ``ip:port``, IPv6 in brackets.
        hosts: IP addresses that were named without a port: every endpoint there.
    """

    places: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()

    def __contains__(self, address: str) -> bool:
        return address in self.places or (bool(self.hosts) and addresses.split(address)[0] in self.hosts)

    @classmethod
    def of(cls, names: Iterable[str]) -> "Subset":
        """Return the endpoints with these names, in any spelling of ``ip:port`` or IP; what is neither names nobody."""
        places, hosts = set(), set()
        for name in map(str.strip, names):
            try:
                places.add(addresses.ip_and_port(name))
            except ValueError:
                try:
                    hosts.add(addresses.ip(name.removeprefix("[").removesuffix("]")))
                except ValueError:
                    continue
        return cls(frozenset(places), frozenset(hosts))
