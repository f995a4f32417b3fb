"""What to send a client next: a function of what it should have and what it has. Pure.

Two orders are kept. What is named comes first: listeners and routes wait until clusters and assignments are answered
for. And what is named goes last: nothing is removed while the client still holds something that names it.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from protos import discovery_pb2
from xds.client import Client
from xds.snapshot import Reference, Resource, Snapshot
from xds.subscription import ABSENT, Offer, Subscription
from xds.type_urls import CLUSTER, ENDPOINT, FULL_STATE, LISTENER, ORDER, ROUTE, SECRET

_FIRST = (SECRET, CLUSTER, ENDPOINT)
_REFERRERS = {
    SECRET: (CLUSTER, LISTENER),
    CLUSTER: (LISTENER, ROUTE),
    ENDPOINT: (CLUSTER,),
    ROUTE: (LISTENER,),
    LISTENER: (),
}
"""Which types name resources of a type."""


_Content = tuple[str, bool, tuple[tuple[str, str], ...], tuple[str, ...]]

MAX_ENCODED_BYTES = 16_777_216
"""How much of what was encoded is remembered."""


def next_offer(snapshot: Snapshot, client: Client) -> Offer | None:
    """Return the next response for ``client``, or ``None`` when it has all, or owes an answer first."""
    for type_url in ORDER:
        subscription = client.subscriptions.get(type_url)
        if subscription is None or subscription.offered is not None:
            continue
        if type_url not in _FIRST and not _settled(snapshot, client):
            return None
        if offer := _offer(snapshot, client, subscription):
            return offer
    return None


def up_to_date(snapshot: Snapshot, client: Client) -> bool:
    """Tell whether ``client`` answered for all that it should have of ``snapshot``."""
    return all(
        subscription.offered is None and _offer(snapshot, client, subscription) is None
        for subscription in client.subscriptions.values()
    )


class Encoder:
    """Encodes responses, each for all clients that are sent the same but once.

    A restarted control plane sends all of its clients the same, and so does every change.
    """

    def __init__(self, most_bytes: int = MAX_ENCODED_BYTES) -> None:
        """Remember up to ``most_bytes`` of what was encoded last."""
        self._most = most_bytes
        self._bytes = 0
        self._encoded: OrderedDict[_Content, bytes] = OrderedDict()

    def encode(self, offer: Offer, nonce: str) -> bytes:
        """Return ``offer`` as a serialized response of its variant."""
        versions = tuple((resource.name, resource.version) for resource in offer.resources)
        content = (offer.type_url, offer.complete, versions, offer.removed)
        body = self._encoded.get(content)
        if body is None:
            body = self._encoded[content] = _encoded(offer)
            self._bytes += len(body)
            while self._bytes > self._most and len(self._encoded) > 1:
                self._bytes -= len(self._encoded.popitem(last=False)[1])
        else:
            self._encoded.move_to_end(content)
        # Fields may stand in any order, and a message is what its parts are one after the other.
        field = discovery_pb2.DiscoveryResponse if offer.complete else discovery_pb2.DeltaDiscoveryResponse
        return body + field(nonce=nonce).SerializeToString()


def _encoded(offer: Offer) -> bytes:
    """Return ``offer`` without its nonce."""
    if offer.complete:
        response = discovery_pb2.DiscoveryResponse(version_info=_version(offer.resources), type_url=offer.type_url)
        for resource in offer.resources:
            response.resources.add(type_url=resource.type_url, value=resource.body)
        return response.SerializeToString()
    delta = discovery_pb2.DeltaDiscoveryResponse(type_url=offer.type_url, removed_resources=list(offer.removed))
    for resource in offer.resources:
        packed = delta.resources.add(name=resource.name, version=resource.version)
        packed.resource.type_url = resource.type_url
        packed.resource.value = resource.body
    return delta.SerializeToString()


def _version(resources: Sequence[Resource]) -> str:
    """Return the version of a complete set: a hash, so that every control plane gives the same set the same one."""
    lines = "".join(f"{resource.name}={resource.version}\n" for resource in resources)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def _settled(snapshot: Snapshot, client: Client) -> bool:
    """Tell whether ``client`` answered for all clusters and assignments, so that what names them can follow.

    A cluster that it applied is settled only with its assignment: Envoy asks for that in a request of its own, and
    until it comes the cluster answers 503.
    """
    assignments = client.subscriptions.get(ENDPOINT)
    clusters = client.subscriptions.get(CLUSTER)
    if any(subscription and subscription.offered for subscription in (clusters, assignments)):
        return False
    if clusters is None or assignments is None:
        return True
    return all(
        assignments.wants(name) and (name in assignments.held or name in assignments.rejected)
        for name, cluster in clusters.known.items()
        if Reference(ENDPOINT, name) in cluster.references and name in snapshot.of_type(ENDPOINT)
    )


def _offer(snapshot: Snapshot, client: Client, subscription: Subscription) -> Offer | None:
    target, trial = _target(snapshot, subscription)
    changed = {
        name: new.version
        for name, new in target.items()
        if subscription.held.get(name) != new.version or name in subscription.again
    }
    if trial is not None:
        changed = {trial: changed[trial]}
    gone = () if trial is not None else tuple(_gone(snapshot, client, subscription))
    removed = tuple(name for name in gone if not _named(client, Reference(subscription.type_url, name)))
    if not changed and not removed and (target or not _waits_for_all(client, subscription)):
        return None
    if client.incremental:
        resources = tuple(target[name] for name in sorted(changed))
        return Offer(subscription.type_url, resources, changed, removed)
    return Offer(
        subscription.type_url, tuple(_complete(subscription, target, changed, removed)), changed, removed, complete=True
    )


def _waits_for_all(client: Client, subscription: Subscription) -> bool:
    """Tell whether the client asked for a whole set for the first time, which it is told even if it is empty.

    It waits for that; and in state of the world it may hold what it never told us of.
    """
    if subscription.nonce or subscription.held or subscription.type_url not in FULL_STATE:
        return False
    return subscription.wildcard or (bool(subscription.names) and not client.incremental)


def _target(snapshot: Snapshot, subscription: Subscription) -> tuple[dict[str, Resource], str | None]:
    """Return what the client should have, by name, and the one suspect that is to be tried alone now.

    In place of a version that it rejected stands the last good one, where there is one.
    """
    target = {}
    for name, resource in snapshot.of_type(subscription.type_url).items():
        if not subscription.wants(name):
            continue
        if subscription.rejected.get(name) != resource.version:
            target[name] = resource
        elif name in subscription.known:
            target[name] = subscription.known[name]
    suspects = sorted(
        name
        for name, resource in target.items()
        if subscription.suspects.get(name) == resource.version != subscription.held.get(name)
    )
    return target, suspects[0] if suspects else None


def _gone(snapshot: Snapshot, client: Client, subscription: Subscription) -> Iterator[str]:
    """Yield what the client holds, or asked for, and the snapshot does not have."""
    existing = snapshot.of_type(subscription.type_url)
    for name in sorted({*subscription.held, *(subscription.names if client.incremental else ())}):
        if name not in existing and (subscription.held.get(name) != ABSENT or name in subscription.again):
            yield name


def _named(client: Client, reference: Reference) -> bool:
    """Tell whether something that ``client`` holds names the resource.

    Where it holds a version from before a reconnect that nobody here knows, that is taken to name everything.
    """
    for type_url in _REFERRERS[reference.type_url]:
        referrers = client.subscriptions.get(type_url)
        if referrers is None:
            continue
        offered = referrers.offered.resources if referrers.offered else ()
        if any(reference in resource.references for resource in (*referrers.known.values(), *offered)):
            return True
        if any(name not in referrers.known for name, version in referrers.held.items() if version != ABSENT):
            return True
    return False


def _complete(
    subscription: Subscription, target: dict[str, Resource], changed: dict[str, str], removed: tuple[str, ...]
) -> Iterator[Resource]:
    """Yield the whole set in which only ``changed`` and ``removed`` differ from what the client holds."""
    for name in sorted({*subscription.known, *changed} - {*removed}):
        yield target[name] if name in changed else subscription.known[name]
