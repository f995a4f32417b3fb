"""What is known of one endpoint and of one pool, and how readers see it."""

from collections.abc import Callable, Sequence

from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.health import ConnectionRecord, ejected
from tidegate.fleet.ledger import Ledger
from tidegate.fleet.load import EngineReport, MeanTokens
from tidegate.fleet.prefix_index import PrefixIndex
from tidegate.fleet.view import Adapters, EndpointView, PoolView

PRIOR_REQUEST_TOKENS = 1000.0
PRIOR_OUTPUT_TOKENS = 250.0
"""Tokens of a typical request and answer until some were seen (Azure's 2023 conversation trace: 1155 and 211)."""

UNKNOWN = EngineReport()


class Member:
    """One endpoint.

    Attributes:
        spec: as declared.
        connections: whether it can be reached.
        report: what its engine said last.
        reported_at: when, in seconds; ``None`` when it never did.
        own_at_scrape: requests of ours in flight there when the last scrape began.
        foreign: requests of others there, by the last report; ``None`` when that did not say.
        adapters: LoRA adapters there, by the last report; ``None`` when that did not say.
        prefixes: where it is noted what its cache holds.
    """

    __slots__ = ("adapters", "connections", "foreign", "own_at_scrape", "prefixes", "report", "reported_at", "spec")

    def __init__(self, spec: EndpointSpec, prefixes: PrefixIndex) -> None:
        self.spec = spec
        self.prefixes = prefixes
        self.adapters: Adapters | None = None
        self.connections = ConnectionRecord()
        self.report = UNKNOWN
        self.reported_at: float | None = None
        self.own_at_scrape = 0
        self.foreign: float | None = None


class PoolState:
    """One pool and its members, in the order of their declaration.

    Attributes:
        spec: as declared.
        members: its endpoints.
        ejected: those that Envoy should no longer know; ``None`` while that is to be worked out anew.
        request_tokens: tokens of a request with its answer, learned.
        output_tokens: tokens of an answer, learned.
        places: where each address stands among them.
        prefixes: what its endpoints' caches hold.
    """

    __slots__ = ("ejected", "members", "output_tokens", "places", "prefixes", "request_tokens", "spec")

    def __init__(self, spec: PoolSpec) -> None:
        self.spec = spec
        self.members: tuple[Member, ...] = ()
        self.places: dict[str, int] = {}
        self.ejected: frozenset[str] | None = None
        self.request_tokens = MeanTokens(PRIOR_REQUEST_TOKENS)
        self.output_tokens = MeanTokens(PRIOR_OUTPUT_TOKENS)
        self.prefixes = PrefixIndex()

    def view(
        self,
        ledger: Ledger,
        oldest: float,
        now: float,
        places: Sequence[int] | None = None,
        cached: Callable[[str], int] | None = None,
    ) -> PoolView:
        """Return the pool at ``now`` (seconds); reports from before ``oldest`` (seconds) do not count.

        Of a large pool only the members at ``places`` may be asked for; what others bear is then judged by those alone.
        ``cached`` says how many tokens of the prompt at hand an address has in its cache.

        This is most of a decision's cost: 0.7 us for each endpoint. Naming the view's fields, instead of giving them in
        their order, would add half of that.
        """
        out = self.ejected
        if out is None:
            out = ejected((member.spec.address, member.connections.state) for member in self.members)
            self.ejected = out
        members = self.members if places is None else [self.members[place] for place in places]
        assumed = _foreign_per_weight(members, oldest)
        tokens_each = self.request_tokens.value
        views = []
        for member in members:
            spec = member.spec
            address, weight = spec.address, spec.weight
            inflight = ledger.inflight(address)
            reported_at = member.reported_at
            fresh = reported_at is not None and reported_at >= oldest
            report = member.report if fresh else UNKNOWN
            foreign = member.foreign if fresh else None
            if foreign is None:
                foreign = assumed * weight
            views.append(
                EndpointView(
                    address,
                    weight,
                    member.connections.state,
                    address in out,
                    inflight.requests,
                    inflight.tokens,
                    inflight.requests + foreign,
                    inflight.tokens + foreign * tokens_each,
                    report.running,
                    report.waiting,
                    report.kv_usage,
                    None if reported_at is None else now - reported_at,
                    report.kv_capacity_tokens,
                    spec.role,
                    spec.models,
                    spec.max_running,
                    member.adapters if fresh else None,
                    0 if cached is None else cached(address),
                )
            )
        return PoolView(self.spec.name, self.spec.engine, self.spec.models, tuple(views))


def _foreign_per_weight(members: Sequence[Member], oldest: float) -> float:
    """Return the load of others, in requests per unit of weight, on the members that reported since ``oldest``.

    That is what a silent member is assumed to bear: were it taken for idle, a broken metrics page would draw every
    request to it. Where nobody reports, nobody is burdened, and what we have in flight decides alone.
    """
    requests, weights = 0.0, 0
    for member in members:
        if member.foreign is not None and member.reported_at is not None and member.reported_at >= oldest:
            requests += member.foreign
            weights += member.spec.weight
    return requests / weights if weights else 0.0
