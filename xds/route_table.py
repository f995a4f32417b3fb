"""The route table, serialized: put together from the routes of the pools, each of which is serialized once.

Groups of Envoys have route tables that differ in which pools are in them. With fifty pools a table takes a third of a
second to build, during which nothing is decided.
"""

from envoy_data_plane.envoy.config.route import v3 as route

from tidegate.config import Config
from xds.routes import after_pools, before_pools, of_pool, table

VIRTUAL_HOSTS = 2
"""The number of this field in a RouteConfiguration."""

ROUTES = 3
"""The number of this field in a VirtualHost."""

_LENGTH_DELIMITED = 2


def encoded(config: Config, elsewhere: frozenset[str], made: dict[str, bytes]) -> bytes:
    """Return ``xds.routes.route_configuration`` as bytes.

    What is ``made`` of pools, by name, is taken from there, and what is not yet is added.
    """
    for pool in config.pools:
        if pool.name not in elsewhere and pool.name not in made:
            made[pool.name] = _rows(of_pool(pool, config))
    here = b"".join(made[pool.name] for pool in config.pools if pool.name not in elsewhere)
    around = table(config, [])
    (host,) = around.virtual_hosts
    around.virtual_hosts = []
    rows = _rows(before_pools()) + here + _rows(after_pools(config, elsewhere))
    # Fields may stand in any order; those of one repeated field keep theirs.
    return bytes(around) + _field(VIRTUAL_HOSTS, bytes(host) + rows)


def _rows(routes: list[route.Route]) -> bytes:
    return b"".join(_field(ROUTES, bytes(one)) for one in routes)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | _LENGTH_DELIMITED]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
