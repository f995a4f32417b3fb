"""What is known of one endpoint and of one pool, and how readers see it."""

from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.health import ConnectionRecord, ejected
from tidegate.fleet.ledger import Ledger
from tidegate.fleet.load import EngineReport, MeanTokens
from tidegate.fleet.view import EndpointView, PoolView

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
        foreign: requests of others there, by the last report.
    """

    __slots__ = ("connections", "foreign", "own_at_scrape", "report", "reported_at", "spec")

    def __init__(self, spec: EndpointSpec) -> None:
        self.spec = spec
        self.connections = ConnectionRecord()
        self.report = UNKNOWN
        self.reported_at: float | None = None
        self.own_at_scrape = 0
        self.foreign = 0.0


class PoolState:
    """One pool and its members, in the order of their declaration.

    Attributes:
        spec: as declared.
        members: its endpoints.
        ejected: those that Envoy should no longer know; ``None`` while that is to be worked out anew.
        request_tokens: tokens of a request with its answer, learned.
        output_tokens: tokens of an answer, learned.
    """

    __slots__ = ("ejected", "members", "output_tokens", "request_tokens", "spec")

    def __init__(self, spec: PoolSpec) -> None:
        self.spec = spec
        self.members: tuple[Member, ...] = ()
        self.ejected: frozenset[str] | None = None
        self.request_tokens = MeanTokens(PRIOR_REQUEST_TOKENS)
        self.output_tokens = MeanTokens(PRIOR_OUTPUT_TOKENS)

    def view(self, ledger: Ledger, oldest: float, now: float) -> PoolView:
        """Return the pool at ``now`` (seconds); reports from before ``oldest`` (seconds) do not count.

        This is most of a decision's cost: 0.7 us for each endpoint. Naming the view's fields, instead of giving them in
        their order, would add half of that.
        """
        out = self.ejected
        if out is None:
            out = ejected((member.spec.address, member.connections.state) for member in self.members)
            self.ejected = out
        tokens_each = self.request_tokens.value
        views = []
        for member in self.members:
            address = member.spec.address
            inflight = ledger.inflight(address)
            reported_at = member.reported_at
            fresh = reported_at is not None and reported_at >= oldest
            report = member.report if fresh else UNKNOWN
            foreign = member.foreign if fresh else 0.0
            views.append(
                EndpointView(
                    address,
                    member.spec.weight,
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
                )
            )
        return PoolView(self.spec.name, self.spec.engine, self.spec.models, tuple(views))
