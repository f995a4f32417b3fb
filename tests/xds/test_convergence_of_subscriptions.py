"""Clients that want this and then that, by name or all of it, on one stream or on one for each type: all get there.

The protocol's other half is a model here: a client that subscribes, unsubscribes, answers late, answers twice, refuses
and comes back. The transcripts of what Envoy itself does are in ``test_convergence``.
"""

from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protos.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
)
from xds.client import Client
from xds.response import Encoder, next_offer, up_to_date
from xds.snapshot import Resource, Snapshot
from xds.type_urls import CLUSTER, FULL_STATE
from xds.type_urls import ORDER as TYPES

NAMES = ("a", "b", "c")
MOST = 60
"""Responses that any one change may take, at the most: what is refused together is tried one by one."""

Wanted = tuple[Literal["wildcard", "named"], frozenset[str]]


def body(name: str, content: str) -> bytes:
    return f"{name} {content}".encode()


@dataclass
class Peer:
    """A client of one type: what it wants, what it has, and what it was sent and has not answered."""

    incremental: bool
    type_url: str
    client: Client
    all: bool = False
    names: set[str] = field(default_factory=set)
    has: dict[str, str] = field(default_factory=dict)
    nonce: str = ""
    old: list[str] = field(default_factory=list)
    unanswered: DiscoveryResponse | DeltaDiscoveryResponse | None = None
    first: bool = True
    named: bool = False
    """It has given names on this stream, so that none no longer means everything."""

    def wants(self, name: str) -> bool:
        return self.all or name in self.names

    def ask(self, everything: bool, names: frozenset[str]) -> None:
        """Subscribe to ``names`` from now on, and to everything else too if that is wanted.

        A first request without names means everything, for some types.
        """
        before, knew_all = (set(self.names), self.all) if not self.first else (set[str](), False)
        unsaid = not names and not self.named and (self.first or knew_all or not self.incremental)
        self.all, self.names = everything or (unsaid and self.type_url in FULL_STATE), set(names)
        if self.incremental:
            added, gone = sorted(self.names - before), sorted(before - self.names)
            if self.all != knew_all and not (unsaid and self.first and self.type_url in FULL_STATE):
                (added if self.all else gone).append("*")
            held = {name: self._version(name) for name in self.has if self.wants(name)} if self.first else {}
            self.named = self.named or bool(added)
            self._send_delta(subscribe=added, unsubscribe=gone, versions=held)
        else:
            self._send(nonce=self.nonce)
        self.first = False
        self._drop()

    def _drop(self) -> None:
        """Keep what is subscribed to. A request that crosses a response is void: until then all is kept."""
        if self.incremental or self.unanswered is None:
            self.has = {name: content for name, content in self.has.items() if self.wants(name)}

    def _version(self, name: str) -> str:
        return Resource(self.type_url, name, body(name, self.has[name])).version

    def _send(self, nonce: str, error: str = "") -> None:
        star = self.all and (self.named or bool(self.names) or self.type_url not in FULL_STATE)
        names = [*sorted(self.names), *(["*"] if star else [])]
        self.named = self.named or bool(names)
        request = DiscoveryRequest(type_url=self.type_url, resource_names=names, response_nonce=nonce)
        if error:
            request.error_detail.message = error
        self.client.take(DiscoveryRequest.FromString(request.SerializeToString()))

    def _send_delta(
        self,
        nonce: str = "",
        error: str = "",
        subscribe: list[str] | None = None,
        unsubscribe: list[str] | None = None,
        versions: dict[str, str] | None = None,
    ) -> None:
        request = DeltaDiscoveryRequest(
            type_url=self.type_url,
            response_nonce=nonce,
            resource_names_subscribe=subscribe or [],
            resource_names_unsubscribe=unsubscribe or [],
            initial_resource_versions=versions or {},
        )
        if error:
            request.error_detail.message = error
        self.client.take_delta(DeltaDiscoveryRequest.FromString(request.SerializeToString()))

    def take(self, response: DiscoveryResponse | DeltaDiscoveryResponse) -> None:
        """Be sent a response."""
        assert self.unanswered is None, "another one while the last is unanswered"
        self.unanswered = response

    def answer(self) -> bool:
        """Apply the response and say so, or refuse it as a whole; tell whether there was one."""
        response, self.unanswered = self.unanswered, None
        if response is None:
            return False
        self.old.append(self.nonce)
        self.nonce = response.nonce
        new = dict(self._contents(response))
        error = "bad" if any("bad" in content for content in new.values()) else ""
        if not error:
            if isinstance(response, DiscoveryResponse) and self.type_url in FULL_STATE:
                self.has.clear()
            self.has |= {name: content for name, content in new.items() if self.wants(name)}
            for name in getattr(response, "removed_resources", ()):
                self.has.pop(name, None)
        if self.incremental:
            self._send_delta(response.nonce, error)
        else:
            self._send(response.nonce, error)
        self._drop()
        return True

    def again(self, which: int) -> None:
        """Send an answer to a response that was answered long ago, or to none that there ever was."""
        stale = self.old[which % len(self.old)] if self.old else "never"
        if self.first or stale in {"", self.nonce}:
            return
        if self.incremental:
            self._send_delta(stale, "late")
        else:
            self._send(stale, "late")

    @staticmethod
    def _contents(response: DiscoveryResponse | DeltaDiscoveryResponse) -> list[tuple[str, str]]:
        if isinstance(response, DiscoveryResponse):
            values = [one.value for one in response.resources]
        else:
            values = [one.resource.value for one in response.resources]
        return [(name, content) for name, _, content in (value.decode().partition(" ") for value in values)]


@dataclass
class Session:
    """A client's streams: one for all types, or one for each."""

    incremental: bool
    aggregated: bool
    peers: dict[str, Peer] = field(default_factory=dict)
    encoder: Encoder = field(default_factory=Encoder)
    responses: int = 0
    nonces: int = 0

    def connect(self) -> None:
        """Open the streams anew: what was on the way is lost, what the client has and wants is not."""
        shared = Client(self.incremental)
        for type_url in TYPES:
            before = self.peers.get(type_url)
            client = shared if self.aggregated else Client(self.incremental)
            peer = self.peers[type_url] = Peer(self.incremental, type_url, client)
            if before is not None and (before.all or before.names):
                peer.has = before.has
                peer.ask(before.all, frozenset(before.names))

    def push(self, snapshot: Snapshot) -> bool:
        """Send what is due on every stream; tell whether there was anything."""
        sent = False
        for client in {id(peer.client): peer.client for peer in self.peers.values()}.values():
            client.recognise(snapshot)
            while (offer := next_offer(snapshot, client)) is not None:
                self.nonces += 1
                self.responses += 1
                nonce = f"n{self.nonces}"
                client.sent(offer, nonce)
                kind = DeltaDiscoveryResponse if self.incremental else DiscoveryResponse
                self.peers[offer.type_url].take(kind.FromString(self.encoder.encode(offer, nonce)))
                sent = True
        return sent

    def settle(self, snapshot: Snapshot) -> None:
        """Send and answer until there is nothing more to say."""
        before = self.responses
        answered = True
        while self.push(snapshot) or answered:
            answered = [peer.answer() for peer in self.peers.values()] != [False] * len(self.peers)
            assert self.responses - before < MOST, "responses do not end"
        assert all(up_to_date(snapshot, peer.client) for peer in self.peers.values())


contents = st.sampled_from(["1", "2", "bad", "bad 2"])
snapshots = st.dictionaries(
    st.sampled_from([(type_url, name) for type_url in TYPES for name in NAMES]), contents, max_size=8
).map(lambda made: Snapshot(Resource(kind, name, body(name, content)) for (kind, name), content in made.items()))
some_names = st.frozensets(st.sampled_from(NAMES))
steps = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(TYPES), st.booleans(), some_names),
    st.tuples(st.just("answer"), st.sampled_from(TYPES)),
    st.tuples(st.just("again"), st.sampled_from(TYPES), st.integers(0, 5)),
    st.tuples(st.just("push")),
    st.tuples(st.just("connect")),
)


def play(session: Session, snapshot: Snapshot, step: tuple[object, ...]) -> None:
    match step:
        case ("ask", str(type_url), bool(everything), frozenset() as names):
            session.peers[type_url].ask(everything, names)
        case ("answer", str(type_url)):
            session.peers[type_url].answer()
        case ("again", str(type_url), int(which)):
            session.peers[type_url].again(which)
        case ("push",):
            session.push(snapshot)
        case ("connect",):
            session.connect()


@pytest.mark.parametrize("aggregated", [True, False], ids=["one stream", "a stream for each type"])
@pytest.mark.parametrize("incremental", [True, False], ids=["delta", "state of the world"])
@given(history=st.lists(st.tuples(snapshots, st.lists(steps, max_size=8)), min_size=1, max_size=4))
@settings(max_examples=80, deadline=None)
def test_every_client_ends_with_the_last_good_version_of_what_it_wants(
    incremental: bool, aggregated: bool, history: list[tuple[Snapshot, list[tuple[object, ...]]]]
) -> None:
    session = Session(incremental, aggregated)
    session.connect()
    for snapshot, taken in history:
        for step in taken:
            play(session, snapshot, step)
    final = history[-1][0]
    session.settle(final)
    for type_url, peer in session.peers.items():
        wanted = {name: one for name, one in final.of_type(type_url).items() if peer.wants(name)}
        for name, resource in wanted.items():
            if b"bad" not in resource.body:
                assert body(name, peer.has.get(name, "")) == resource.body, (type_url, name)
        assert not any("bad" in content for content in peer.has.values())
        # In state of the world a client brings along what nobody here knows: while a set is refused, it keeps that too.
        # And of assignments and routes it is not told there that one is gone.
        if incremental or (type_url in FULL_STATE and not any(b"bad" in one.body for one in wanted.values())):
            assert {*peer.has} <= {*wanted}, type_url
    responses = session.responses
    session.settle(final)
    assert session.responses == responses, "a client that has everything is left alone"


@pytest.mark.parametrize("incremental", [True, False], ids=["delta", "state of the world"])
def test_a_refused_version_is_sent_at_most_twice_on_a_stream(incremental: bool) -> None:
    """With others, and then alone."""
    session = Session(incremental, aggregated=True)
    session.connect()
    session.peers[CLUSTER].ask(True, frozenset())
    bad = Snapshot(Resource(CLUSTER, name, body(name, "bad" if name == "b" else "1")) for name in NAMES)
    session.settle(bad)
    assert session.responses <= 1 + len(NAMES)
    assert session.peers[CLUSTER].has == {"a": "1", "c": "1"}
    for _ in range(10):
        session.settle(bad)
    assert session.responses <= 1 + len(NAMES)
    good = Snapshot(Resource(CLUSTER, name, body(name, "2")) for name in NAMES)
    session.settle(good)
    assert session.peers[CLUSTER].has == dict.fromkeys(NAMES, "2")
