"""The client's end of the discovery protocol, for tests: small resources, and requests as Envoy writes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protos.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
)
from xds.client import Answered, Client
from xds.response import Encoder, next_offer
from xds.snapshot import Reference, Resource, Snapshot
from xds.type_urls import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET

SHORT = {CLUSTER: "CDS", ENDPOINT: "EDS", LISTENER: "LDS", ROUTE: "RDS", SECRET: "SDS"}


def fleet(pools: Mapping[str, str], listener: str = "1", cluster: str = "1") -> Snapshot:
    """Return a snapshot with a cluster and an assignment per pool, of the content given, and routes to all of them."""
    to = sorted(pools)
    return Snapshot(
        [
            *(
                Resource(
                    CLUSTER,
                    name,
                    f"cluster {name} {cluster}".encode(),
                    frozenset({Reference(ENDPOINT, name)}),
                )
                for name in pools
            ),
            *(Resource(ENDPOINT, name, f"members {name} {content}".encode()) for name, content in pools.items()),
            Resource(SECRET, "s", b"secret s"),
            Resource(LISTENER, "l", f"listener {listener}".encode(), frozenset({Reference(ROUTE, "r")})),
            Resource(ROUTE, "r", f"routes {to}".encode(), frozenset(Reference(CLUSTER, name) for name in to)),
        ]
    )


@dataclass
class Wire:
    """A client's stream without a transport: what it sends is taken in, what it is sent is kept."""

    incremental: bool
    client: Client = field(init=False)
    nonces: dict[str, str] = field(default_factory=dict)
    sent: int = 0

    def __post_init__(self) -> None:
        self.client = Client(self.incremental)

    def ask(self, type_url: str, names: Sequence[str] = (), nonce: str | None = None) -> Answered | None:
        """Send a state-of-the-world request, which also acknowledges the last response unless ``nonce`` is another."""
        given = self.nonces.get(type_url, "") if nonce is None else nonce
        request = DiscoveryRequest(type_url=type_url, resource_names=names, response_nonce=given)
        return self.client.take(DiscoveryRequest.FromString(request.SerializeToString()))

    def refuse(self, type_url: str, names: Sequence[str] = (), reason: str = "bad") -> Answered | None:
        """Send a rejection of the last response."""
        if self.incremental:
            delta = DeltaDiscoveryRequest(type_url=type_url, response_nonce=self.nonces[type_url])
            delta.error_detail.message = reason
            return self.client.take_delta(delta)
        request = DiscoveryRequest(
            type_url=type_url, resource_names=names, response_nonce=self.nonces[type_url], version_info="old"
        )
        request.error_detail.message = reason
        return self.client.take(request)

    def change(
        self,
        type_url: str,
        subscribe: Sequence[str] = (),
        unsubscribe: Sequence[str] = (),
        versions: Mapping[str, str] | None = None,
        nonce: str = "",
    ) -> Answered | None:
        """Send an incremental request that answers nothing, unless ``nonce`` is given."""
        request = DeltaDiscoveryRequest(
            type_url=type_url,
            resource_names_subscribe=subscribe,
            resource_names_unsubscribe=unsubscribe,
            initial_resource_versions=versions or {},
            response_nonce=nonce,
        )
        return self.client.take_delta(DeltaDiscoveryRequest.FromString(request.SerializeToString()))

    def acknowledge(self, type_url: str) -> Answered | None:
        """Send an incremental acknowledgement."""
        return self.change(type_url, nonce=self.nonces[type_url])

    def pull(self, snapshot: Snapshot) -> list[str]:
        """Take everything that is sent now; return it as ``CDS a b -c``."""
        lines = []
        while (response := self.pull_one(snapshot)) is not None:
            names = [self.name_of(packed) for packed in response.resources]
            removed = [f"-{name}" for name in getattr(response, "removed_resources", ())]
            lines.append(" ".join([SHORT[response.type_url], *names, *removed]))
        return lines

    def pull_one(self, snapshot: Snapshot) -> DiscoveryResponse | DeltaDiscoveryResponse | None:
        """Take one response."""
        self.client.recognise(snapshot)
        offer = next_offer(snapshot, self.client)
        if offer is None:
            return None
        self.sent += 1
        nonce = f"n{self.sent}"
        self.client.sent(offer, nonce)
        self.nonces[offer.type_url] = nonce
        kind = DeltaDiscoveryResponse if self.incremental else DiscoveryResponse
        response = kind.FromString(Encoder().encode(offer, nonce))
        assert response.nonce == nonce
        return response

    def name_of(self, packed: object) -> str:
        """Return the name of a resource in a response; our small resources have it as their second word."""
        name = getattr(packed, "name", None)
        if isinstance(name, str):
            return name
        words = getattr(packed, "value", b"").decode().split()
        return {"listener": "l", "routes": "r"}.get(words[0], words[1])
