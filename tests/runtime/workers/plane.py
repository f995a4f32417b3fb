"""A main process without processes: its fleet, its team, and seats whose channels are lists."""

from tidegate.fleet.events import FleetEvent, RequestEnded, RequestReserved
from tidegate.fleet.state import Fleet
from tidegate.runtime.tenants import Tenants
from tidegate.runtime.workers import messages
from tidegate.runtime.workers.framing import Deframer
from tidegate.runtime.workers.seat import Seat, State
from tidegate.runtime.workers.team import Team
from tidegate.telemetry.metrics import Metrics
from tidegate.tokens.correction import Corrections


class FakeSeat(Seat):
    """A worker's seat without a process; what it is sent stays in ``sent``."""

    def __init__(self, number: int, team: Team) -> None:
        super().__init__(number, 7000 + number, "text", team)
        self.sent: list[messages.ToWorker] = []
        self.killed = False
        self._deframer = Deframer()

    def send_encoded(self, frame: bytes) -> None:
        """Keep it."""
        self.sent.extend(map(messages.to_worker.decode, self._deframer.feed(frame)))

    def kill(self) -> None:
        """Keep that."""
        self.killed = True


class Plane:
    """The main process. It is a ``Journal``."""

    def __init__(self, workers: int = 2) -> None:
        self.fleet = Fleet(45.0)
        self.now = 0.0
        self.corrections = Corrections()
        self.metrics = Metrics(lambda: self.fleet.views(self.now), lambda: len(self.fleet.ledger))
        self.tenants = Tenants(lambda: 1_700_000_000.0, self.metrics.registry)
        known = (self.fleet, self.corrections, self.metrics, self.tenants)
        self.team = Team(*known, self, self.apply, "text")
        self.team._config = b"{}"  # as after the first ``configure``
        self.seats = [self._seat(number) for number in range(workers)]

    def _seat(self, number: int) -> FakeSeat:
        seat = FakeSeat(number, self.team)
        self.team._seats.append(seat)
        self.team._relays[seat] = self.team.relay()
        self.start(seat)
        return seat

    def start(self, seat: FakeSeat) -> None:
        """Begin with a new process."""
        seat.sent.clear()
        seat.state = State.READY
        seat.starts += 1
        self.team.arrived(seat)

    def die(self, seat: FakeSeat) -> None:
        """End the process without a word."""
        seat.state = State.DOWN
        self.team.left(seat)

    def apply(self, fact: FleetEvent) -> None:
        """Let something happen."""
        self.team.tell(fact, self.now)
        self.fleet.apply(fact, self.now)

    def expire(self) -> None:
        """Give up what was not heard of for too long."""
        for change in self.fleet.expire(self.now):
            self.team.tell(RequestEnded(change.reservation.id), self.now)

    def reserved(self, event: RequestReserved) -> None:
        """See ``Journal``."""

    def delivered(self, reservation_id: str) -> None:
        """See ``Journal``."""

    def abandoned(self, reservation_id: str) -> None:
        """See ``Journal``."""
        self.apply(RequestEnded(reservation_id))
