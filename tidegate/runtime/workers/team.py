"""The main process's side: it starts the workers, tells them what happens, and takes in what they decide."""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from extproc.h2_transport import Inflows
from tidegate.config import Config
from tidegate.config_control import Control
from tidegate.fleet.events import FleetEvent, RequestEnded, RequestReserved
from tidegate.fleet.state import Fleet
from tidegate.runtime.desk import Journal
from tidegate.runtime.lessons import Lesson
from tidegate.runtime.processes import Children
from tidegate.runtime.tenants import Tenants
from tidegate.runtime.workers import messages
from tidegate.runtime.workers.counter import Counter
from tidegate.runtime.workers.messages import encode
from tidegate.runtime.workers.seat import Seat, State
from tidegate.runtime.workers.tally import Relay
from tidegate.telemetry.log import event
from tidegate.telemetry.metrics import Metrics
from tidegate.telemetry.status import JsonObject
from tidegate.tokens.correction import Corrections

logger = logging.getLogger("tidegate.workers")

PREPARE_SECONDS: Final = 60.0
"""How long a worker may take to get ready for a configuration; a tokenizer takes a second."""

SETTLE_SECONDS: Final = 2.0
"""How long it may take to go over to it: one turn of its event loop."""

POLL_SECONDS: Final = 0.01

SILENT_SECONDS: Final = 15.0
"""A worker says something every second. One that is silent for so long hangs, and is killed. Envoy has left it out
after one second; killing it earlier would cost what it holds when the machine was merely busy."""

STARTING_SECONDS: Final = 120.0
"""The same for one that is not ready yet."""

EARLY_ENDS: Final = 10_000
"""Ends that are remembered because they overtook the news of the reservation."""

UNUSABLE: Final = 1
"""The exit status of a worker that misses something that will not come by itself."""


class WorkerError(Exception):
    """A worker cannot start; it has said why."""


class Team:
    """The workers of one control plane."""

    def __init__(
        self,
        fleet: Fleet,
        corrections: Corrections,
        metrics: Metrics,
        tenants: Tenants,
        journal: Journal,
        apply: Callable[[FleetEvent], None],
        log_format: str,
    ) -> None:
        """Nothing is started before ``starting``.

        Args:
            fleet: the one of which the workers have replicas.
            corrections: likewise.
            metrics: count what the workers count.
            tenants: count what the workers' requests use.
            journal: is told what becomes of the workers' reservations.
            apply: changes the fleet, and calls ``tell``.
            log_format: the form of the workers' log lines.
        """
        self._fleet = fleet
        self._corrections = corrections
        self._metrics = metrics
        self._tenants = tenants
        self._counter = Counter(tenants)
        self._journal = journal
        self._apply = apply
        self._log_format = log_format
        self._started_at = int(time.time())
        self._children = Children()
        self._seats: list[Seat] = []
        self._relays: dict[Seat, Relay] = {}
        self._speaker: Seat | None = None
        self._early_ends: OrderedDict[str, RequestEnded] = OrderedDict()
        self._number = 0
        self._in_force = 0
        self._config = b""
        self._prepared: messages.Prepare | None = None

    # -- life

    @contextlib.asynccontextmanager
    async def starting(self, control: Control) -> AsyncIterator[None]:
        """Run the workers. They import what they need while we get ready ourselves, and then wait to be welcomed."""
        self._seats = [Seat(number, port, self._log_format, self) for number, port in enumerate(control.ports, 1)]
        self._relays = {seat: self.relay() for seat in self._seats}
        try:
            for seat in self._seats:
                await self._children.adopt(seat)
            yield
        finally:
            await self._children.stop()

    def relay(self) -> Relay:
        """Return what counts what one worker has counted."""
        return Relay(self._metrics, {"unauthenticated": self._tenants.unauthenticated})

    @contextlib.asynccontextmanager
    async def serving(self, control: Control, inflows: Inflows) -> AsyncIterator[None]:  # noqa: ARG002
        """Let the workers answer, who have ports of their own; at the end they finish what is open.

        ``inflows`` do not come their way.
        """
        try:
            yield
        finally:
            for seat in self._seats:
                # Nobody else could answer, so there is nothing to wait for.
                seat.announced = True
                seat.send(messages.Stop())
                seat.flush()

    async def run(self) -> None:
        """Start again what dies, and end what hangs, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for seat in self._seats:
                tasks.create_task(self._children.keep(seat))
            clock = asyncio.get_running_loop().time
            while True:
                await asyncio.sleep(1.0)
                for seat in self._seats:
                    limit = SILENT_SECONDS if seat.decides else STARTING_SECONDS
                    if seat.is_up and clock() - seat.heard_at > limit:
                        event(logger, "a worker hangs and is killed", level=logging.ERROR, worker=seat.program.name)
                        seat.kill()

    async def ready(self, config: Config) -> None:  # noqa: ARG002  they have it
        """Wait until every worker is ready.

        Raises:
            WorkerError: one misses something.
        """
        while not all(seat.decides for seat in self._seats):
            await asyncio.sleep(POLL_SECONDS)
            for seat in self._seats:
                if seat.status == UNUSABLE:
                    raise WorkerError(f"{seat.program.name} cannot start")

    def unready(self) -> Sequence[str]:
        """Return why nobody decides."""
        return () if any(seat.decides for seat in self._seats) else ("no worker is ready",)

    def status(self) -> Sequence[JsonObject]:
        """Return how the workers are."""
        return [
            {"port": seat.port, "state": seat.state.value, "pid": seat.pid, "restarts": max(0, seat.starts - 1)}
            for seat in self._seats
        ]

    # -- what the workers are told

    def tell(self, fact: FleetEvent, now: float) -> None:
        """Tell every worker but the one that said so what is about to happen to the fleet at ``now``."""
        if isinstance(fact, RequestEnded) and fact.reservation_id not in self._fleet.ledger:
            self._early_ends[fact.reservation_id] = fact
            if len(self._early_ends) > EARLY_ENDS:
                self._early_ends.popitem(last=False)
        message = messages.fact(fact, now)
        if message is not None:
            self._broadcast(message)

    def teach(self, lesson: Lesson) -> None:
        """Tell every worker what an engine's count has taught."""
        self._broadcast(messages.Taught(*lesson))

    def _broadcast(self, message: messages.Message) -> None:
        if not self._config:
            return  # it is in what they are welcomed with
        encoded = encode(message)
        for seat in self._seats:
            if seat is not self._speaker:
                seat.send_encoded(encoded)

    # -- configuration

    async def prepare(self, config: Config) -> None:
        """Have every worker get ready for ``config``; one that does not is killed, and begins with what is in force."""
        self._number += 1
        self._prepared = messages.Prepare(self._number, _as_json(config))
        self._broadcast(self._prepared)
        number = self._number
        await self._all(lambda seat: seat.prepared >= number, PREPARE_SECONDS)

    def configure(self, config: Config) -> None:
        """Decide by ``config``, the first one or the one that was prepared last, from now on."""
        self._corrections.keep(pool.name for pool in config.pools)
        # Before the workers go over: what is asked for by the new one finds its limits.
        self._tenants.configure(config)
        first, self._config = not self._config, _as_json(config)
        self._prepared, self._in_force = None, self._number
        if first:
            for seat in self._seats:
                self.arrived(seat)
        else:
            self._broadcast(messages.Decide(self._number))

    async def settled(self) -> None:
        """Wait until every worker decides by what was configured last; one that does not is killed."""
        number = self._number
        await self._all(lambda seat: seat.deciding >= number, SETTLE_SECONDS)

    async def _all(self, done: Callable[[Seat], bool], seconds: float) -> None:
        """Wait until ``done`` holds for all that decide: a worker that is starting goes through it all before."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not all(done(seat) for seat in self._seats if seat.decides):  # noqa: ASYNC110  few and short waits
                    await asyncio.sleep(POLL_SECONDS)
        for seat in self._seats:
            if seat.decides and not done(seat):
                event(logger, "a worker does not follow and is killed", level=logging.ERROR, worker=seat.program.name)
                seat.kill()

    # -- what the workers say: ``Host``

    def arrived(self, seat: Seat) -> None:
        """Give a new worker all that it begins with. What happens from here on, it is told."""
        if not self._config:
            return  # it is welcomed with the first configuration
        seat.send(
            messages.Welcome(
                seat.port,
                self._config,
                self._started_at,
                self._fleet.image(),
                self._corrections.image(),
            )
        )
        seat.prepared = seat.deciding = self._in_force
        if self._prepared is not None:
            seat.send(self._prepared)

    def received(self, seat: Seat, message: messages.FromWorker) -> None:
        """Take in what a worker says."""
        self._speaker = seat
        try:
            self._take(seat, message)
        finally:
            self._speaker = None

    def _take(self, seat: Seat, message: messages.FromWorker) -> None:
        match message:
            case messages.Reserved(reserved):
                self._reserved(seat, reserved)
            case messages.Delivered(reservation_id):
                seat.undelivered.discard(reservation_id)
                self._journal.delivered(reservation_id)
            case messages.Abandoned(reservation_id):
                seat.undelivered.discard(reservation_id)
                self._journal.abandoned(reservation_id)
            case messages.Asked() | messages.Withdrawn():
                self._counter.received(seat, message)
            case messages.Counted(calls):
                self._relays[seat].count(calls)
            case messages.Prepared(number):
                seat.prepared = number
            case messages.Deciding(number):
                seat.deciding = number
            case messages.Ready():
                seat.state = State.READY
                event(logger, "worker ready", worker=seat.program.name, port=seat.port, pid=seat.pid)
            case messages.Leaving():
                seat.state, seat.announced = State.LEAVING, True
                event(logger, "worker leaving", worker=seat.program.name, port=seat.port, pid=seat.pid)

    def _reserved(self, seat: Seat, event: RequestReserved) -> None:
        reservation = event.reservation
        self._counter.reserved(seat, reservation.id)
        self._apply(event)
        self._journal.reserved(event)
        if end := self._early_ends.pop(reservation.id, None):
            # The log entry about its end was read first; the worker itself was told then.
            self._apply(end)
        else:
            seat.undelivered.add(reservation.id)

    def left(self, seat: Seat) -> None:
        """Release what a worker had taken and reserved for decisions that nobody will deliver."""
        self._relays[seat].close()
        self._counter.left(seat)
        undelivered, seat.undelivered = seat.undelivered, set()
        for reservation_id in undelivered:
            self._journal.abandoned(reservation_id)


def _as_json(config: Config) -> bytes:
    return config.model_dump_json().encode()
