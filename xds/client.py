"""One client's stream: a subscription for each type, and the requests of both variants of the protocol taken in."""

from dataclasses import dataclass, field
from typing import NamedTuple

from protos import discovery_pb2
from xds.snapshot import Snapshot
from xds.subscription import Offer, Subscription
from xds.type_urls import CLUSTER, ENDPOINT, ORDER


class Answered(NamedTuple):
    """A client's answer to a response.

    Attributes:
        offer: what was answered.
        error: why it was refused; ``None`` when it was applied.
    """

    offer: Offer
    error: str | None


@dataclass(slots=True)
class Client:
    """What is known of the client at the other end of one stream.

    Attributes:
        incremental: the stream speaks the delta variant.
        subscriptions: by type, in the order of serving; a type that was not asked for is not in it.
    """

    incremental: bool
    subscriptions: dict[str, Subscription] = field(default_factory=dict)

    def take(self, request: discovery_pb2.DiscoveryRequest) -> Answered | None:
        """Take in a state-of-the-world request; return the answer that it holds.

        "The server should not treat a request with a stale nonce as an answer": it is ignored altogether, because the
        client's next one says again what it wants. Whether an answer is a refusal is told by ``error_detail`` alone.
        Types that are not served are ignored.

        Raises:
            TooManyNamesError: it asks for too much.
        """
        subscription = self._subscription(request.type_url)
        if subscription is None or request.response_nonce != subscription.nonce:
            return None
        subscription.request_names(request.resource_names)
        return _answer(subscription, request)

    def take_delta(self, request: discovery_pb2.DeltaDiscoveryRequest) -> Answered | None:
        """Take in an incremental request; return the answer that it holds.

        Its subscriptions count whatever its nonce: they are changes, and are not said again.

        Raises:
            TooManyNamesError: it asks for too much.
        """
        first = request.type_url not in self.subscriptions
        subscription = self._subscription(request.type_url)
        if subscription is None:
            return None
        if first and not request.resource_names_subscribe:
            subscription.subscribe_to_all()
        subscription.subscribe(request.resource_names_subscribe)
        subscription.unsubscribe(request.resource_names_unsubscribe)
        if first:
            subscription.resume(request.initial_resource_versions)
        if request.response_nonce != subscription.nonce:
            return None
        return _answer(subscription, request)

    def sent(self, offer: Offer, nonce: str) -> None:
        """Note that ``offer`` went out under ``nonce``.

        The assignments of changed clusters must follow: Envoy warms such a cluster until its assignment comes, up to 15
        seconds, and in the incremental variant does not ask for what it has a subscription to (measured with 1.40).
        """
        self.subscriptions[offer.type_url].sent(offer, nonce)
        assignments = self.subscriptions.get(ENDPOINT)
        if offer.type_url == CLUSTER and assignments is not None:
            changed = (resource for resource in offer.resources if resource.name in offer.changed)
            named = (reference for cluster in changed for reference in cluster.references)
            assignments.resend(name for type_url, name in named if type_url == ENDPOINT)

    def recognise(self, snapshot: Snapshot) -> None:
        """Learn from ``snapshot`` what is in the versions that the client said it holds."""
        for type_url, subscription in self.subscriptions.items():
            subscription.recognise(snapshot.of_type(type_url))

    def _subscription(self, type_url: str) -> Subscription | None:
        if type_url not in self.subscriptions and type_url in ORDER:
            self.subscriptions[type_url] = Subscription(type_url)
        return self.subscriptions.get(type_url)


def _answer(
    subscription: Subscription, request: discovery_pb2.DiscoveryRequest | discovery_pb2.DeltaDiscoveryRequest
) -> Answered | None:
    if request.HasField("error_detail"):
        offer, error = subscription.reject(), request.error_detail.message
    else:
        offer, error = subscription.acknowledge(), None
    return None if offer is None else Answered(offer, error)
