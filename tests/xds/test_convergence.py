"""Whatever happens on the wire, a client ends with the last good of everything, and is then left alone."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.xds.wire import Wire
from xds.client import Client
from xds.response import next_offer
from xds.snapshot import Reference, Resource, Snapshot
from xds.subscription import ABSENT, Offer
from xds.type_urls import CLUSTER, ENDPOINT, LISTENER, ORDER, ROUTE, SECRET

POOLS = ("a", "b", "c")


@dataclass
class Model:
    """An Envoy: applies a response whole or not at all, and refuses whatever holds the word "bad"."""

    incremental: bool
    wire: Wire = field(init=False)
    has: dict[str, dict[str, Resource]] = field(default_factory=lambda: {type_url: {} for type_url in ORDER})
    warming: set[str] = field(default_factory=set)
    broken: int = 0
    pushes: int = 0

    def connect(self) -> None:
        """Open a stream, forgetting the last one, and ask for everything."""
        self.wire = Wire(self.incremental)
        # What was warming when the stream broke waits for Envoy's own 15 seconds; the old cluster serves meanwhile.
        self.warming.clear()
        for type_url in ORDER:
            if self.incremental:
                versions = {name: resource.version for name, resource in self.has[type_url].items()}
                self.wire.change(type_url, self._names(type_url), versions=versions)
            else:
                self.wire.ask(type_url, self._names(type_url))

    def _names(self, type_url: str) -> list[str]:
        """Return what it asks for by name: its clusters' assignments, and its listener's routes and certificate."""
        if type_url == ENDPOINT:
            return sorted(self.has[CLUSTER])
        return {ROUTE: ["r"], SECRET: ["s"]}.get(type_url, [])

    def step(self, snapshot: Snapshot) -> bool:
        """Take in and answer one response; tell whether there was one."""
        self.wire.client.recognise(snapshot)
        offer = next_offer(snapshot, self.wire.client)
        if offer is None:
            return False
        self.pushes += 1
        self.wire.sent += 1
        nonce = f"n{self.wire.sent}"
        self.wire.client.sent(offer, nonce)
        self.wire.nonces[offer.type_url] = nonce
        if any(b"bad" in resource.body for resource in offer.resources):
            self.wire.refuse(offer.type_url, self._names(offer.type_url))
            return True
        held = self.has[offer.type_url]
        self._warm(offer, held)
        if offer.complete:
            held.clear()
        for name in offer.removed:
            held.pop(name, None)
        held.update({resource.name: resource for resource in offer.resources})
        self._answer(offer.type_url)
        self._check()
        return True

    def _warm(self, offer: Offer, held: dict[str, Resource]) -> None:
        """Note which clusters changed, and which assignments came since: until then Envoy does not use the new ones."""
        if offer.type_url == CLUSTER:
            self.warming |= {new.name for new in offer.resources if new != held.get(new.name)}
        if offer.type_url == ENDPOINT:
            self.warming -= {new.name for new in offer.resources}

    def _answer(self, type_url: str) -> None:
        names = self._names(type_url)
        for gone in {*self.has[ENDPOINT]} - {*self.has[CLUSTER]}:
            del self.has[ENDPOINT][gone]
        if not self.incremental:
            self.wire.ask(type_url, names)
            if type_url == CLUSTER and {*self.has[CLUSTER]} != self.wire.client.subscriptions[ENDPOINT].names:
                self.wire.ask(ENDPOINT, self._names(ENDPOINT))
            return
        self.wire.acknowledge(type_url)
        if type_url == CLUSTER:
            subscribed, wanted = self.wire.client.subscriptions[ENDPOINT].names, {*self.has[CLUSTER]}
            self.wire.change(ENDPOINT, sorted(wanted - subscribed), sorted(subscribed - wanted))

    def _check(self) -> None:
        """Count the moments at which a route names a cluster that is not there, or has no assignment."""
        for route in self.has[ROUTE].values():
            for _, name in route.references:
                if name not in self.has[CLUSTER] or name not in self.has[ENDPOINT]:
                    self.broken += 1


def snapshots(bad: bool) -> st.SearchStrategy[Snapshot]:
    contents = st.sampled_from(["1", "2", "3", "bad"] if bad else ["1", "2", "3"])
    pools = st.dictionaries(st.sampled_from(POOLS), st.tuples(contents, contents), min_size=1)
    return st.builds(_snapshot, pools, contents, contents, contents)


def _snapshot(pools: dict[str, tuple[str, str]], listener: str, routes: str, secret: str) -> Snapshot:
    return Snapshot(
        [
            *(
                Resource(CLUSTER, name, f"c {name} {cluster}".encode(), frozenset({Reference(ENDPOINT, name)}))
                for name, (cluster, _) in pools.items()
            ),
            *(Resource(ENDPOINT, name, f"e {name} {members}".encode()) for name, (_, members) in pools.items()),
            Resource(SECRET, "s", f"s {secret}".encode()),
            Resource(
                LISTENER,
                "l",
                f"l {listener}".encode(),
                frozenset({Reference(ROUTE, "r"), Reference(SECRET, "s")}),
            ),
            Resource(
                ROUTE,
                "r",
                f"r {sorted(pools)} {routes}".encode(),
                frozenset(Reference(CLUSTER, name) for name in pools),
            ),
        ]
    )


Steps = st.lists(st.one_of(st.integers(0, 4), st.just("reconnect")), max_size=6)


def _play(model: Model, history: list[tuple[Snapshot, list[int | str]]]) -> Snapshot:
    model.connect()
    for snapshot, steps in history:
        for step in steps:
            if step == "reconnect":
                model.connect()
            else:
                for _ in range(int(step)):
                    model.step(snapshot)
    return history[-1][0]


@pytest.mark.parametrize("incremental", [False, True])
@given(history=st.lists(st.tuples(snapshots(bad=True), Steps), min_size=1, max_size=5))
@settings(max_examples=150, deadline=None)
def test_any_history_converges_to_the_last_good_version_of_everything(
    incremental: bool, history: list[tuple[Snapshot, list[int | str]]]
) -> None:
    model = Model(incremental)
    final = _play(model, history)
    before = model.pushes
    while model.step(final):
        assert model.pushes - before < 60, "responses do not end"
    for type_url in ORDER:
        wanted = final.of_type(type_url)
        for name, resource in wanted.items():
            if b"bad" not in resource.body and (type_url != ENDPOINT or name in model.has[CLUSTER]):
                assert model.has[type_url][name].version == resource.version, (type_url, name)
        # What a client keeps of an old listener or old routes may name what is gone; then it keeps that too. And in
        # state of the world nobody knows what a client brings along: while the new set is refused, it keeps all.
        named_by = [final.of_type(LISTENER)["l"], final.of_type(ROUTE)["r"]]
        complete = [] if incremental else [*final.of_type(CLUSTER).values(), *final.of_type(ENDPOINT).values()]
        if not any(b"bad" in resource.body for resource in (*named_by, *complete)):
            assert {*model.has[type_url]} <= {*wanted}
    # A cluster does not warm for ever, unless its new assignment is bad and the old one was sent by somebody before us.
    assert not model.warming & {*model.has[CLUSTER]} & {*model.wire.client.subscriptions[ENDPOINT].known}
    assert not any(b"bad" in held.body for named in model.has.values() for held in named.values())
    assert not model.step(final)


@pytest.mark.parametrize("incremental", [False, True])
@given(
    history=st.lists(st.tuples(snapshots(bad=False), st.lists(st.integers(0, 4), max_size=4)), min_size=1, max_size=5)
)
@settings(max_examples=150, deadline=None)
def test_no_route_ever_names_a_cluster_that_is_missing_or_has_no_assignment(
    incremental: bool, history: list[tuple[Snapshot, list[int | str]]]
) -> None:
    model = Model(incremental)
    final = _play(model, history)
    while model.step(final):
        pass
    assert model.broken == 0


@given(snapshot=snapshots(bad=False))
def test_a_client_that_comes_back_unchanged_is_sent_nothing(snapshot: Snapshot) -> None:
    model = Model(incremental=True)
    model.connect()
    while model.step(snapshot):
        pass
    model.connect()
    assert not model.step(snapshot)


@given(snapshot=snapshots(bad=False), names=st.lists(st.sampled_from(POOLS), unique=True))
def test_every_name_that_is_asked_for_is_answered(snapshot: Snapshot, names: list[str]) -> None:
    wire = Wire(incremental=True)
    wire.change(ENDPOINT, names)
    wire.pull(snapshot)
    if names:
        wire.acknowledge(ENDPOINT)
    held = _held(wire.client)
    assert {*held} == {*names}
    assert all((version == ABSENT) == (name not in snapshot.of_type(ENDPOINT)) for name, version in held.items())


def _held(client: Client) -> dict[str, str]:
    return client.subscriptions[ENDPOINT].held
