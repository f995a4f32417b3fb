"""A fleet under a virtual clock: the same ``fleet`` and ``scheduling`` code that runs live, fed by a heap of events."""

import heapq
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.fleet.endpoint import PoolSpec
from tidegate.fleet.events import (
    LoadReported,
    PoolsDeclared,
    RequestEnded,
    ScrapeFailed,
    ScrapeStarted,
    TimePassed,
)
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet
from tidegate.scheduling import pickers
from tidegate.scheduling.admission import Admission
from tidegate.scheduling.dispatch import Decision, Dispatcher, Refusal
from tidegate.scheduling.lanes import Lane
from tidegate.scheduling.line import Asker, Place, QueueSettings, Turnaway
from tidegate.scheduling.pickers import PickerContract
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.request import InferenceRequest
from tidegate.simulator.batching import QueueFullError
from tidegate.simulator.virtual import oracle
from tidegate.simulator.virtual.conditions import SLOW_FACTOR, Conditions, Fault, FaultKind
from tidegate.simulator.virtual.engine import TooLongError, VirtualEngine
from tidegate.simulator.virtual.fleet import FleetSpec, address
from tidegate.simulator.virtual.job import Job
from tidegate.simulator.virtual.outcome import Ending, Outcome, Recording, Sample
from tidegate.simulator.virtual.workload import Arrival, Workload
from tidegate.tokens.count import CountSource, TokenCount

POOL = "simulated"
MODEL = "simulated"
_LEASE_SECONDS = 1e12
"""Live, the access log's periodic entries renew the leases; here, every end is reported."""
_LOOK_SECONDS = 0.25
"""How often it is looked for room that came about without an event, as live."""
_BYTES_PER_TOKEN = 4

TICK_SECONDS = 1.0
"""How often it is looked whether what holds for a time is over, as live."""


def policies() -> tuple[str, ...]:
    """Return the names of all policies that can be simulated, the oracle last."""
    return (*pickers.names(), oracle.NAME)


@dataclass(slots=True)
class _Endpoint:
    address: str
    engine: VirtualEngine
    up: bool = True
    booked: float | None = None
    gauges: EngineReport = field(default_factory=EngineReport)
    frozen: bool = False


@dataclass(slots=True)
class _Request:
    id: str
    arrival: Arrival
    outcome: Outcome
    destinations: tuple[str, ...] = ()
    delivered: float = 0.0
    first_refused: bool = False


class Simulation:
    """One run of one policy. ``run`` may be called once."""

    def __init__(
        self,
        spec: FleetSpec,
        workload: Workload,
        policy: str,
        seed: int = 0,
        conditions: Conditions | None = None,
        lanes: tuple[Lane, ...] = (),
        queue: QueueSettings | None = None,
    ) -> None:
        """Prepare the run.

        Args:
            spec: the endpoints.
            workload: the requests.
            policy: a name from ``policies()``.
            seed: where all random draws start: the same seed brings the same run.
            conditions: how late news is, and what goes wrong.
            lanes: parts of the endpoints for large prompts.
            queue: how requests wait that find no room; without it they go to engines that are full.

        Raises:
            KeyError: there is no such policy.
            ValueError: a fault befalls an endpoint that is not there.
        """
        self._conditions = conditions or Conditions()
        if any(fault.endpoint >= len(spec.profiles) for fault in self._conditions.faults):
            raise ValueError(f"a fault of an endpoint that is not there; expected 0 to {len(spec.profiles) - 1}")
        self.now = 0.0
        self._spec = spec
        self._workload = workload
        self._endpoints = [_Endpoint(address(at), spec.engine(at)) for at in range(len(spec.profiles))]
        self._by_address = {one.address: one for one in self._endpoints}
        self._events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._order = 0
        self._left = len(workload.arrivals)
        self._outcomes: list[Outcome] = []
        self._samples: list[Sample] = []
        self._rng = random.Random(seed)  # noqa: S311 - nothing here is secret
        self._fleet = Fleet(_LEASE_SECONDS)
        self._dispatcher = Dispatcher(self._fleet, random.Random(seed + 1), self._picker)  # noqa: S311
        declared = PoolsDeclared((PoolSpec(POOL, "vllm", (MODEL,), spec.endpoints()),))
        self._fleet.apply(declared, 0.0)
        self._admission = Admission(self._fleet, self._dispatcher)
        rooms = self._admission.configure({} if queue is None else {POOL: queue}, 0.0)
        self._waiting: dict[str, _Request] = {}
        self._timed_for = math.inf
        self._dispatcher.configure(declared, {POOL: Policy(policy, lanes=lanes)}, rooms)

    def run(self, progress: Callable[[int], None] | None = None) -> Recording:
        """Run until every request is over, or nothing can end it; ``progress`` is told how many arrived so far."""
        arrivals = self._workload.arrivals
        self._at(arrivals[0].at, self._arrive, 0)
        for endpoint in self._endpoints:
            # Scrapes of a fleet are spread over the interval, as the scraper spreads them.
            self._at(self._rng.random() * self._conditions.scrape_interval, self._scrape, endpoint)
        for fault in self._conditions.faults:
            self._at(fault.at, self._begin_fault, fault)
        self._at(0.0, self._sample, None)
        self._at(TICK_SECONDS, self._tick, None)
        events, told = self._events, 0
        while events and self._left:
            self.now, _, call, argument = heapq.heappop(events)
            call(argument)
            if progress is not None and len(self._outcomes) - told >= 1_000:
                told = len(self._outcomes)
                progress(told)
        if progress is not None:
            progress(len(self._outcomes))
        return Recording(self._outcomes, self._samples, self.now)

    def engine_at(self, place: str) -> VirtualEngine | None:
        """Return the engine at an address as it truly is, ``None`` while it is down; for the oracle."""
        endpoint = self._by_address[place]
        return endpoint.engine if endpoint.up else None

    def _picker(self, name: str, weights: Mapping[str, float]) -> PickerContract:
        return oracle.Picker(self) if name == oracle.NAME else pickers.make(name, weights)

    def true_request(self, request_id: str) -> Arrival:
        """Return a request with the length of its answer; for the oracle."""
        return self._workload.arrivals[int(request_id)]

    def _at(self, when: float, call: Callable[[Any], None], argument: Any) -> None:
        self._order += 1
        heapq.heappush(self._events, (when, self._order, call, argument))

    def _arrive(self, number: int) -> None:
        arrivals = self._workload.arrivals
        if number + 1 < len(arrivals):
            self._at(arrivals[number + 1].at, self._arrive, number + 1)
        arrival = arrivals[number]
        outcome = Outcome(
            arrived=self.now,
            prompt_tokens=arrival.prompt_tokens,
            output_tokens=arrival.output_tokens,
            tenant=arrival.tenant,
            priority=arrival.priority,
        )
        self._outcomes.append(outcome)
        request = _Request(str(number), arrival, outcome)
        answer = self._admission.ask(
            InferenceRequest(
                id=request.id,
                api="chat_completions",
                model=MODEL,
                prompt=TokenCount(arrival.prompt_tokens, CountSource.EXACT),
                max_output_tokens=arrival.max_tokens,
                stream=True,
                prefix=arrival.prefix,
                block_tokens=arrival.block_tokens,
                session=arrival.session,
            ),
            self.now,
            Asker(arrival.tenant, arrival.priority, _BYTES_PER_TOKEN * arrival.prompt_tokens),
        )
        if isinstance(answer, Place):
            outcome.estimate = answer.estimate
            if not self._waiting:
                self._at(self.now + _LOOK_SECONDS, self._look_again, None)
            self._waiting[request.id] = request
            self._look()  # for those that made room for it
        else:
            self._decided(request, answer)

    def _look(self) -> None:
        """Let go whose turn it is, and turn away whose time is up."""
        for place, answer in self._admission.poll(self.now):
            request = self._waiting.pop(place.request.id)
            request.outcome.waited = self.now - request.outcome.arrived
            self._decided(request, answer)
        due = self._admission.next_deadline()
        if due != self._timed_for:
            self._timed_for = due
            if due < math.inf:
                self._at(due, self._time_is_up, due)

    def _look_again(self, _: None) -> None:
        self._look()
        if self._waiting:
            self._at(self.now + _LOOK_SECONDS, self._look_again, None)

    def _time_is_up(self, due: float) -> None:
        if due == self._timed_for:
            self._timed_for = math.inf
            self._look()

    def _decided(self, request: _Request, answer: Decision | Refusal | Turnaway) -> None:
        if isinstance(answer, Decision):
            request.destinations = answer.addresses
            self._deliver((request, 0))
            return
        request.outcome.ending = Ending.REFUSED if isinstance(answer, Refusal) else Ending(answer.why.value)
        self._left -= 1

    def _deliver(self, what: tuple[_Request, int]) -> None:
        """Hand the request to the endpoint at that place among those named, as Envoy does on its retries."""
        request, attempt = what
        if attempt == len(request.destinations):
            self._end(request, Ending.FAILED)
            return
        endpoint = self._by_address[request.destinations[attempt]]
        if not endpoint.up:
            request.first_refused = True
            self._at(self.now + self._conditions.connect, self._deliver, (request, attempt + 1))
            return
        arrival = request.arrival
        request.delivered = self.now
        request.outcome.endpoint = endpoint.address
        job = Job(arrival.prompt_tokens, arrival.output_tokens, arrival.blocks, arrival.block_tokens, request)
        try:
            endpoint.engine.submit(job, self.now)
        except TooLongError:
            self._end(request, Ending.TOO_LONG)
        except QueueFullError:
            request.first_refused = True
            self._deliver((request, attempt + 1))
        else:
            self._book(endpoint)

    def _book(self, endpoint: _Endpoint) -> None:
        """See to it that the engine is called when its next event is due."""
        due = endpoint.engine.next_event
        if due is not None and due != endpoint.booked:
            endpoint.booked = due
            self._at(due, self._advance, (endpoint, endpoint.engine, due))

    def _advance(self, what: tuple[_Endpoint, VirtualEngine, float]) -> None:
        endpoint, engine, due = what
        if engine is not endpoint.engine or engine.next_event != due or endpoint.booked != due:
            return  # the run was cut short, or the process is another one
        endpoint.booked = None
        for job in engine.advance(due):
            request: _Request = job.tag
            outcome = request.outcome
            outcome.first_token, outcome.cached_tokens = job.first_token, job.cached or 0
            outcome.preemptions = job.preemptions
            self._end(request, Ending.ANSWERED)
        self._book(endpoint)

    def _end(self, request: _Request, ending: Ending) -> None:
        outcome = request.outcome
        outcome.ending, outcome.ended = ending, self.now
        self._left -= 1
        answered = ending is Ending.ANSWERED
        first = outcome.first_token
        event = RequestEnded(
            request.id,
            output_tokens=outcome.output_tokens if answered else None,
            ttft=first - request.delivered if answered and first is not None else None,
            duration=self.now - request.delivered if answered else None,
            cached_tokens=outcome.cached_tokens if answered else None,
            failed=ending is Ending.FAILED or request.first_refused,
        )
        self._at(self.now + self._conditions.end_delay, self._told, event)

    def _told(self, event: RequestEnded) -> None:
        self._fleet.apply(event, self.now)
        if self._waiting:
            self._look()

    def _scrape(self, endpoint: _Endpoint) -> None:
        conditions = self._conditions
        if len(self._outcomes) == len(self._workload.arrivals) and not self._waiting:
            return  # nobody is left to decide on
        self._fleet.apply(ScrapeStarted(endpoint.address), self.now)
        if not endpoint.up:
            self._fleet.apply(ScrapeFailed(endpoint.address, unreachable=True, reason="refused"), self.now)
            self._at(self.now + conditions.scrape_interval, self._scrape, endpoint)
            return
        if not endpoint.frozen:
            endpoint.gauges = endpoint.engine.report(self.now)
        # The report first, then the next scrape: the scraper never has two of one endpoint under way.
        self._at(self.now + conditions.scrape_delay, self._reported, (endpoint.address, endpoint.gauges))
        self._at(self.now + max(conditions.scrape_interval, conditions.scrape_delay), self._scrape, endpoint)

    def _reported(self, what: tuple[str, EngineReport]) -> None:
        self._fleet.apply(LoadReported(*what), self.now)
        if self._waiting:
            self._look()

    def _tick(self, _: None) -> None:
        self._fleet.apply(TimePassed(), self.now)
        self._at(self.now + TICK_SECONDS, self._tick, None)

    def _sample(self, _: None) -> None:
        """Look at the true state of all engines, for the report."""
        reports = [one.engine.report(self.now) for one in self._endpoints if one.up]
        usage = [report.kv_usage or 0.0 for report in reports]
        self._samples.append(Sample(self.now, usage, sum(report.waiting or 0.0 for report in reports)))
        self._at(self.now + max(1.0, self._workload.seconds / 600), self._sample, None)

    def _begin_fault(self, fault: Fault) -> None:
        endpoint = self._endpoints[fault.endpoint]
        self._at(self.now + fault.seconds, self._end_fault, fault)
        if fault.kind is FaultKind.DIE and endpoint.up:
            lost = list(endpoint.engine.jobs())
            endpoint.up, endpoint.engine, endpoint.booked = False, self._spec.engine(fault.endpoint), None
            for job in lost:
                self._end(job.tag, Ending.FAILED)
        elif fault.kind is FaultKind.FREEZE:
            endpoint.gauges, endpoint.frozen = endpoint.engine.report(self.now), True
            endpoint.engine.freeze(self.now)
        elif fault.kind is FaultKind.SLOW:
            endpoint.engine.set_slow(SLOW_FACTOR, self.now)
        self._book(endpoint)

    def _end_fault(self, fault: Fault) -> None:
        endpoint = self._endpoints[fault.endpoint]
        if fault.kind is FaultKind.DIE:
            endpoint.up = True
        elif fault.kind is FaultKind.FREEZE:
            endpoint.frozen = False
            endpoint.engine.thaw(self.now)
        else:
            endpoint.engine.set_slow(1.0, self.now)
        self._book(endpoint)
