"""What a peer is, by its certificate: the name that SPIFFE has for it, under the trust domain that is ours.

Names are compared whole and exactly: no wildcard, no ending. A certificate that bears several URIs is nobody's: SPIFFE
has one (X.509-SVID, section 2).
"""

import enum
import re
from collections.abc import Collection
from typing import NamedTuple

_PATH = re.compile(
    r"/tidegate/(?:(?P<envoy>envoy)(?:/(?P<id>[A-Za-z0-9._-]{1,253}))?|agent/(?:node/)?(?P<node>[A-Za-z0-9._-]{1,253}))"
)


class Role(enum.StrEnum):
    """What a peer is."""

    ENVOY = "envoy"
    AGENT = "agent"


class Peer(NamedTuple):
    """A peer.

    Attributes:
        role: what it is.
        name: the Envoy's node id, or the node that the agent speaks for; empty for any.
    """

    role: Role
    name: str


def peer(uris: Collection[str], trust_domain: str) -> Peer | None:
    """Return who bears a certificate with ``uris`` as its alternative names; ``None`` for one without a role."""
    if len(uris) != 1:
        return None
    (uri,) = uris
    prefix = f"spiffe://{trust_domain}"
    known = _PATH.fullmatch(uri, len(prefix)) if uri.startswith(prefix) else None
    if known is None:
        return None
    if known["envoy"]:
        return Peer(Role.ENVOY, known["id"] or "")
    return Peer(Role.AGENT, known["node"])
