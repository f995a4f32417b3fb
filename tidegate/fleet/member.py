"""What is known of one endpoint and of one pool, and how readers see it."""

import dataclasses
from collections.abc import Callable, Sequence

from tidegate.fleet.breaker import SOURCE, Breaker, Circuit
from tidegate.fleet.condition import Condition
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import FleetChange, HealthChanged, PoolAlarmed, SharesChanged
from tidegate.fleet.evidence import FAILURES, Ending, Evidence
from tidegate.fleet.gpu import prior
from tidegate.fleet.health import OUT, ConnectionRecord, HealthStatus
from tidegate.fleet.image import MemberImage, PoolImage
from tidegate.fleet.ledger import Inflight, Ledger, Reservation
from tidegate.fleet.load import AtWork, EngineReport, MeanTokens, restarted
from tidegate.fleet.others import Heard, Others
from tidegate.fleet.output_lengths import PoolOutputLengths
from tidegate.fleet.pool_health import PoolHealth
from tidegate.fleet.prefix_index import PrefixIndex
from tidegate.fleet.prefix_match import PrefixTokens
from tidegate.fleet.view import Adapters, EndpointView, PoolView
from tidegate.fleet.vram import UNKNOWN as VRAM_UNKNOWN
from tidegate.fleet.vram import preallocated
from tidegate.fleet.work import Load, Work, load

PRIOR_REQUEST_TOKENS = 1000.0
"""Tokens of a typical request with its answer until some were seen (Azure's 2023 conversation trace: 1366)."""

UNKNOWN = EngineReport()

KEPT_SECONDS = 0.01
"""How long an endpoint is shown as it was, while nothing happens to it: what only time changes (how old its report is,
what it has prefilled since) changes little in that, and a view is most of what a decision costs."""


class Member:
    """One endpoint.

    Attributes:
        spec: as declared.
        connections: whether it can be reached.
        breaker: what its requests' endings have come to; ``None`` while there is nothing to remember.
        condition: how it is, by what all sources say of it.
        report: what its engine said last.
        reported_at: when, in seconds; ``None`` when it never did.
        own_at_scrape: requests of ours in flight there when the last scrape began.
        foreign: requests of others there, by the last report; ``None`` when that did not say.
        others: what other replicas said that they have in flight there; ``None`` when they said nothing.
        adapters: LoRA adapters there, by the last report; ``None`` when that did not say.
        prefixes: where it is noted what its cache holds.
        told: what its cache holds is what its engine says, and nothing else is taken for a sign of it.
        vram: what its GPU agent says of its VRAM.
        work: what it is working on, and how fast.
        shown: as readers saw it last, without what is cached of a prompt; ``None`` since something happened to it.
        shown_until: until when, in seconds, that will do.
        warm: likewise with what is cached of a prompt, the last time that anything was.
        assumed: the requests of others, for its weight, that it was assumed to bear then, while it was silent itself;
            ``None`` when it was not.
    """

    __slots__ = (
        "adapters",
        "assumed",
        "breaker",
        "condition",
        "connections",
        "foreign",
        "others",
        "own_at_scrape",
        "prefixes",
        "report",
        "reported_at",
        "shown",
        "shown_until",
        "spec",
        "told",
        "vram",
        "warm",
        "work",
    )

    def __init__(self, spec: EndpointSpec, prefixes: PrefixIndex) -> None:
        self.spec = spec
        self.prefixes = prefixes
        self.told = False
        self.vram = VRAM_UNKNOWN
        self.adapters: Adapters | None = None
        self.work = Work(prior(spec.gpu))
        self.connections = ConnectionRecord()
        self.breaker: Breaker | None = None
        self.condition = Condition()
        self.report = UNKNOWN
        self.reported_at: float | None = None
        self.own_at_scrape = 0
        self.foreign: float | None = None
        self.others: Heard | None = None
        self.shown: EndpointView | None = None
        self.warm: EndpointView | None = None
        self.shown_until = 0.0
        self.assumed: float | None = None

    def declare(self, spec: EndpointSpec, prefixes: PrefixIndex, *, told: bool = False) -> None:
        """Take over what is declared of it now, where it is noted what its cache holds, and who says so."""
        if told is not self.told:
            prefixes.forget(spec.address)
        self.spec, self.prefixes, self.told, self.shown = spec, prefixes, told, None
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
            self.vram = self.vram.unloaded()
            self.work.restarted()
            self.presume_empty()
        if report.kv_capacity_tokens != self.report.kv_capacity_tokens:
            self.prefixes.resize(self.spec.address, report.kv_capacity_tokens)
            self.work.rates.holds(report.kv_capacity_tokens)
        self.report, self.reported_at, self.foreign, self.shown = report, now, foreign, None
        if self.others is not None:
            self.others = self.others.checked(report, foreign, self.own_at_scrape, now)
        running, waiting = report.running_adapters, report.waiting_adapters
        self.adapters = None if running is None or waiting is None else Adapters(running, waiting, report.max_adapters)

    def hear_of(self, others: Others | None, now: float, seconds: float) -> None:
        """Take in at ``now`` what other replicas have in flight, which is believed for so many ``seconds``."""
        if others is not None or self.others is not None:
            self.others = None if others is None else Heard.after(self.others, others, now, seconds)
            self.shown = None

    def at_work(self, inflight: Inflight, oldest: float) -> AtWork:
        """Return what is known of the work here; a report from before ``oldest`` (seconds) does not count."""
        fresh = self.reported_at is not None and self.reported_at >= oldest
        seconds = inflight.prompt_tokens * self.work.rates.pace.prefill_seconds
        return AtWork(inflight.requests, seconds, self.report if fresh else UNKNOWN)

    def heard(
        self, reservation: Reservation, ending: Ending, now: float, *, spec: PoolSpec, alone: bool
    ) -> Evidence | None:
        """Take in how a request ended here; return what the breaker says if it opened or closed (see ``Breaker``)."""
        rules, breaker = spec.breaker, self.breaker
        if rules is None or (breaker is None and ending is not Ending.BUSY and ending not in FAILURES):
            return None
        if breaker is None:
            breaker = self.breaker = Breaker()
        sent_at = reservation.reserved_at
        if breaker.heard(reservation.id, ending, sent_at, now, self.spec.address, rules, alone=alone):
            return breaker.word(now)
        if ending is Ending.SERVED and breaker.idle(now, rules):
            self.breaker = None
        return None

    def image(self) -> MemberImage:
        """Return it as plain data."""
        return MemberImage(
            self.spec.address,
            self.connections.failures,
            self.connections.state,
            self.report,
            self.reported_at,
            self.own_at_scrape,
            self.foreign,
            self.work.rates.image(),
            tuple(self.prefixes.held(self.spec.address)) if self.told else (),
            self.vram,
            None if self.breaker is None else dataclasses.replace(self.breaker),
            self.condition.image(),
            self.others,
            (self.work.sent_at, self.work.sent_number),
            self.work.trusted_from,
        )

    def restore(self, image: MemberImage) -> None:
        """Become what ``image`` shows."""
        self.connections.failures, self.connections.state = image.failures, image.reachability
        self.report, self.reported_at = image.report, image.reported_at
        self.own_at_scrape, self.foreign, self.others = image.own_at_scrape, image.foreign, image.others
        self.work.rates.restore(image.rates, image.report.kv_capacity_tokens)
        (self.work.sent_at, self.work.sent_number), self.work.trusted_from = image.sent, image.trusted_from
        self.prefixes.resize(image.address, image.report.kv_capacity_tokens)
        self.prefixes.hold(image.address, image.told[::-1], 1)
        self.condition.restore(image.condition)
        self.vram, self.shown = image.vram, None


class PoolState:
    """One pool and its members, in the order of their declaration.

    Attributes:
        spec: as declared.
        members: its endpoints.
        health: judges how its endpoints are.
        judged: those that it judges: an endpoint that moves from one pool to another is in both for a while, and counts
            in the later one.
        request_tokens: tokens of a request with its answer, learned.
        outputs: how long answers are, learned.
        places: where each address stands among them.
        prefixes: what its endpoints' caches hold.
        sent: how many requests were sent to its endpoints.
    """

    __slots__ = ("health", "judged", "members", "outputs", "places", "prefixes", "request_tokens", "sent", "spec")

    def __init__(self, spec: PoolSpec) -> None:
        self.spec = spec
        self.members: tuple[Member, ...] = ()
        self.judged: tuple[Member, ...] = ()
        self.places: dict[str, int] = {}
        self.health = PoolHealth(spec.health)
        self.request_tokens = MeanTokens(PRIOR_REQUEST_TOKENS)
        self.outputs = PoolOutputLengths()
        self.prefixes = PrefixIndex()
        self.sent = 0

    def image(self) -> PoolImage:
        """Return it as plain data."""
        return PoolImage(self.spec, self.request_tokens.value, self.outputs.image(), self.health.image(), self.sent)

    def restore(self, image: PoolImage) -> None:
        """Become what ``image`` shows; the members are restored already."""
        self.request_tokens.value, self.sent = image.request_tokens, image.sent
        self.outputs.restore(image.outputs)
        self.health.restore(image.alarm, [member.condition for member in self.judged])

    def load(self, member: Member, ledger: Ledger, now: float) -> Load:
        """Return the load of ``member``, one of this pool's, at ``now`` (seconds)."""
        inflight, each, others = ledger.inflight(member.spec.address), self.request_tokens.value, member.others
        shown = load(inflight, member.foreign or 0.0, each)
        return shown if others is None or now > others.until else others.load(load(inflight, 0.0, each), shown, each)

    def view(
        self,
        ledger: Ledger,
        oldest: float,
        now: float,
        places: Sequence[int] | None = None,
        cached: PrefixTokens | None = None,
    ) -> PoolView:
        """Return the pool at ``now`` (seconds); reports from before ``oldest`` (seconds) do not count.

        Of a large pool only the members at ``places`` may be asked for; what others bear is then judged by those alone.
        ``cached`` says how many tokens of the prompt at hand they have in their caches.

        An endpoint to which nothing happened may be shown as it was ``KEPT_SECONDS`` ago.
        """
        members = self.members if places is None else [self.members[place] for place in places]
        slots, groups = cached or _NOTHING_CACHED
        assumed, views = None, []
        for member in members:
            shown = member.shown
            if shown is None or now > member.shown_until or member.assumed is not None:
                if assumed is None:
                    assumed = _foreign_per_weight(members, oldest)
                if shown is None or now > member.shown_until or member.assumed != assumed:
                    shown = self._show(member, ledger.inflight(member.spec.address), oldest, now, assumed)
            if groups:
                slot = slots.get(shown[0], 0)
                for endpoints, there in groups:
                    if endpoints >> slot & 1:
                        # Many prompts begin alike, so the same number is often asked for again.
                        warm = member.warm
                        if warm is None or warm[-1] != there:
                            warm = member.warm = _NEW(EndpointView, (*shown[:-1], there))
                        shown = warm
                        break
            views.append(shown)
        return PoolView(self.spec.name, self.spec.engine, self.spec.models, tuple(views))

    def _show(self, member: Member, inflight: Inflight, oldest: float, now: float, assumed: float) -> EndpointView:
        """Return ``member`` as it is at ``now``, and remember it.

        Naming the view's fields, or having its constructor take them in their order, would add half to what this takes.
        """
        spec, reported_at, work = member.spec, member.reported_at, member.work
        address, weight, pace = spec.address, spec.weight, work.pace(now, self.sent, len(self.members) - 1)
        status, _, _, share = member.condition.health
        fresh = reported_at is not None and reported_at >= oldest
        report = member.report if fresh else UNKNOWN
        foreign = member.foreign if fresh else None
        member.assumed, member.shown_until, member.warm = None, now + KEPT_SECONDS, None
        if fresh and reported_at is not None:
            member.shown_until = min(member.shown_until, now + reported_at - oldest)
        if foreign is None:
            member.assumed, foreign = assumed, assumed * weight
        tokens = context = foreign * self.request_tokens.value
        backlog, busy, failing = work.standing(now) if self.spec.reckons else _NOTHING
        told = member.others
        if told is not None and now <= told.until:
            others = told.believed(self.request_tokens.value)
            foreign, tokens, context = max(foreign, others[0]), max(tokens, others[2]), max(context, others.context)
            backlog += work.pending(others.backlog, now - told.at)
            member.shown_until = min(member.shown_until, told.until)
        fields = (
            address,
            weight if share == 1.0 else weight * share,
            member.connections.state,
            status in OUT,
            inflight.requests,
            inflight.tokens,
            inflight.requests + foreign,
            inflight.tokens + tokens,
            report.running,
            report.waiting,
            report.kv_usage,
            None if reported_at is None else now - reported_at,
            report.kv_capacity_tokens,
            spec.role,
            spec.models,
            spec.max_running,
            member.adapters if fresh else None,
            pace if share == 1.0 else pace.stretched(1.0 / share),
            (inflight.prompt_tokens + inflight.tokens) / 2 + context,
            backlog,
            busy,
            failing,
            None if member.vram.memory is None else self._vram_room(member, inflight, now),
            Circuit.CLOSED if member.breaker is None else member.breaker.circuit(now),
            status,
            share,
            0,
        )
        member.shown = shown = _NEW(EndpointView, fields)
        return shown

    def _vram_room(self, member: Member, inflight: Inflight, now: float) -> float | None:
        spec = self.spec
        if spec.vram == "ignore":
            return None
        set_aside = preallocated(spec.vram, spec.engine, member.report.kv_capacity_tokens)
        return member.vram.room(inflight.tokens, spec.kv_bytes_per_token, now, preallocated=set_aside)

    def judge(self, now: float) -> list[FleetChange]:
        """Have every endpoint be how it is by all that is known at ``now`` (seconds); return what changed."""
        before = [member.condition.health for member in self.judged]
        for member in self.judged:
            if member.breaker is not None and member.breaker.opened_at is not None:
                # Time alone opens half of it.
                member.condition.said[SOURCE] = (member.breaker.word(now), now)
        alarm, changes = self.health.alarm, list[FleetChange]()
        for place, was in self.health.judge([member.condition for member in self.judged], now):
            member = self.judged[place]
            condition = member.condition
            if was.status is HealthStatus.EJECTED:
                member.work.came_back(now)
            changes.append(
                HealthChanged(self.spec.name, member.spec.address, was, condition.health, condition.weighed.detail)
            )
        shares = False
        for member, was in zip(self.judged, before, strict=True):
            health = member.condition.health
            if health.status is HealthStatus.EJECTED or member.condition.is_unready:
                member.work.distrust(now)
            if health is not was:
                member.shown = None
                shares = shares or health.share != was.share
        if shares:
            changes.append(SharesChanged(self.spec.name))
        if self.health.alarm[:2] != alarm[:2]:
            changes.append(PoolAlarmed(self.spec.name, alarm, self.health.alarm))
        return changes


_NEW: Callable[[type[EndpointView], tuple[object, ...]], EndpointView] = tuple.__new__
_NOTHING = (0.0, 0.0, 0.0)
_NOTHING_CACHED = PrefixTokens({}, ())


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
