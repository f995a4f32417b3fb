"""Which node a certificate speaks for.

Names are compared whole and exactly: no wildcard, no ending, and nothing that hides a NUL.
"""

import re
from collections.abc import Iterable

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}", re.ASCII)
_SPIFFE = re.compile(
    r"spiffe://[a-z0-9._-]{1,255}(?:/[A-Za-z0-9._-]+)*/(?:node|tidegate/agent)/(?P<node>[^/]+)", re.ASCII
)


def nodes(alternative_names: Iterable[bytes]) -> frozenset[str]:
    """Return the nodes that a certificate with these subject alternative names may speak for.

    A DNS name or IP address is a node's name as it stands; ``spiffe://DOMAIN/…/node/NAME`` and
    ``spiffe://DOMAIN/tidegate/agent/NAME`` name ``NAME``.
    """
    found = set()
    for raw in alternative_names:
        text = raw.decode("ascii", "replace")
        spiffe = _SPIFFE.fullmatch(text)
        name = spiffe["node"] if spiffe else text
        if _NAME.fullmatch(name):
            found.add(name)
    return frozenset(found)
