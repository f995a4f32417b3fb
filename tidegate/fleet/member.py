"""What is known of one endpoint and of one pool, and how readers see it."""

from collections.abc import Callable, Sequence

from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.gpu import prior
from tidegate.fleet.health import ConnectionRecord, ejected
from tidegate.fleet.ledger import Ledger
from tidegate.fleet.load import EngineReport, MeanTokens, restarted
from tidegate.fleet.output_lengths import PoolOutputLengths
from tidegate.fleet.prefix_index import PrefixIndex
from tidegate.fleet.view import Adapters, EndpointView, PoolView
from tidegate.fleet.work import Load, Work, load

PRIOR_REQUEST_TOKENS = 1000.0
"""Tokens of a typical request with its answer until some were seen (Azure's 2023 conversation trace: 1366)."""

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
        told: what its cache holds is what its engine says, and nothing else is taken for a sign of it.
        work: what it is working on, and how fast.
    """

    __slots__ = (
        "adapters",
        "connections",
        "foreign",
        "own_at_scrape",
        "prefixes",
        "report",
        "reported_at",
        "spec",
        "told",
        "work",
    )

    def __init__(self, spec: EndpointSpec, prefixes: PrefixIndex) -> None:
        self.spec = spec
        self.prefixes = prefixes
        self.told = False
        self.adapters: Adapters | None = None
        self.work = Work(prior(spec.gpu))
        self.connections = ConnectionRecord()
        self.report = UNKNOWN
        self.reported_at: float | None = None
        self.own_at_scrape = 0
        self.foreign: float | None = None

    def declare(self, spec: EndpointSpec, prefixes: PrefixIndex, *, told: bool = False) -> None:
        """Take over what is declared of it now, where it is noted what its cache holds, and who says so."""
        if told is not self.told:
            prefixes.forget(spec.address)
        self.spec, self.prefixes, self.told = spec, prefixes, told
        self.work.rates.expect(prior(spec.gpu))
        prefixes.resize(spec.address, self.report.kv_capacity_tokens)

    def presume_empty(self) -> None:
        """Forget what its cache held, because its engine seems to have begun anew.

        An engine that tells is taken at its word: its own events may be ahead of what is seen from outside.
        """
        if not self.told:
            self.prefixes.forget(self.spec.address)

    def take(self, report: EngineReport, foreign: float | None, now: float) -> None:
        """Take in ``report`` of ``now`` (seconds), with the ``foreign`` requests that it shows."""
        if restarted(self.report, report):
            self.work.restarted()
            self.presume_empty()
        if report.kv_capacity_tokens != self.report.kv_capacity_tokens:
            self.prefixes.resize(self.spec.address, report.kv_capacity_tokens)
            self.work.rates.holds(report.kv_capacity_tokens)
        self.report, self.reported_at, self.foreign = report, now, foreign
        running, waiting = report.running_adapters, report.waiting_adapters
        self.adapters = None if running is None or waiting is None else Adapters(running, waiting, report.max_adapters)


class PoolState:
    """One pool and its members, in the order of their declaration.

    Attributes:
        spec: as declared.
        members: its endpoints.
        ejected: those that Envoy should no longer know; ``None`` while that is to be worked out anew.
        request_tokens: tokens of a request with its answer, learned.
        outputs: how long answers are, learned.
        places: where each address stands among them.
        prefixes: what its endpoints' caches hold.
    """

    __slots__ = ("ejected", "members", "outputs", "places", "prefixes", "request_tokens", "spec")

    def __init__(self, spec: PoolSpec) -> None:
        self.spec = spec
        self.members: tuple[Member, ...] = ()
        self.places: dict[str, int] = {}
        self.ejected: frozenset[str] | None = None
        self.request_tokens = MeanTokens(PRIOR_REQUEST_TOKENS)
        self.outputs = PoolOutputLengths()
        self.prefixes = PrefixIndex()

    def load(self, member: Member, ledger: Ledger) -> Load:
        """Return the load of ``member``, one of this pool's."""
        return load(ledger.inflight(member.spec.address), member.foreign or 0.0, self.request_tokens.value)

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

        This is most of a decision's cost: 1.3 us for each endpoint. Naming the view's fields, instead of giving them in
        their order, would add half of that.
        """
        out = self.ejected
        if out is None:
            out = ejected((member.spec.address, member.connections.state) for member in self.members)
            self.ejected = out
        members = self.members if places is None else [self.members[place] for place in places]
        assumed = _foreign_per_weight(members, oldest)
        tokens_each, reckons = self.request_tokens.value, self.spec.reckons
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
            work = member.work
            backlog, busy, failing = work.standing(now) if reckons else _NOTHING
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
                    work.rates.pace,
                    (inflight.prompt_tokens + inflight.tokens) / 2 + foreign * tokens_each,
                    backlog,
                    busy,
                    failing,
                )
            )
        return PoolView(self.spec.name, self.spec.engine, self.spec.models, tuple(views))


_NOTHING = (0.0, 0.0, 0.0)


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
