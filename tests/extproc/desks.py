"""A desk that remembers what it was asked, and a ledger of what it has handed out."""

import asyncio

from extproc.body import ParsedBody
from extproc.desk import Catalogue, Gate, WaitingRoom
from extproc.intake import Intake
from extproc.sessions import SessionKeys
from tidegate.fleet.ledger import Reservation
from tidegate.scheduling.dispatch import Decision, Refusal, RefusalReason
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.routes import Route, Routes
from tidegate.tokens.count import CountSource, TokenCount
from tidegate.tokens.prefix import Prefix
from tidegate.tokens.prompt import Prompt

ADDRESSES = ("10.0.0.1:8000", "10.0.0.2:8000")


class Untold:
    """No engine tells what it caches."""

    def __bool__(self) -> bool:
        return False

    async def beginning(self, parsed: ParsedBody, pool: str) -> Prefix | None:
        raise AssertionError((parsed, pool))


class FakeDesk:
    """Serves every model in the pool ``default``, but for ``missing`` (no pool) and ``empty`` (no endpoints)."""

    def __init__(self) -> None:
        self.intake = Intake()
        self.gate: Gate | None = None
        self.waiting_room: WaitingRoom | None = None
        self.ids = 0
        self.live: set[str] = set()
        self.abandoned: list[str] = []
        self.handed_over: list[str] = []
        self.requests: list[InferenceRequest] = []
        self.counted: list[tuple[str, Prompt]] = []
        self.refusals: list[tuple[str, str, str, int, str]] = []
        self.fault: Exception | None = None
        self.unknown_paths = ""
        self.injecting: frozenset[str] = frozenset()
        self.reading: frozenset[str] = frozenset()
        self.prefixes = False
        self.sessions = SessionKeys()
        self.told_prefixes = Untold()
        self.routes: Routes | None = None
        self.objectives: dict[str, int] = {}

    def follow(self, *routes: Route) -> None:
        """Have ``routes`` from now on."""
        self.routes = Routes(routes)

    def catalogue(self) -> Catalogue:
        return Catalogue(
            ("m", "org/model"),
            1_700_000_000,
            self.unknown_paths,
            self.injecting,
            self.reading,
            sessions=self.sessions,
            routes=self.routes,
            objectives=self.objectives,
        )

    def new_id(self, request_id: str) -> str:
        self.ids += 1
        return f"r{self.ids}"

    async def count(self, model: str, prompt: Prompt, pool: str = "") -> TokenCount:
        """Count a token for each character, and ten for each message."""
        self.counted.append((model, prompt))
        await asyncio.sleep(0)
        template = 10 * prompt.conversation.messages if prompt.conversation else 0
        tokens = sum(map(len, prompt.texts)) + template
        return TokenCount(tokens + prompt.other_tokens, CountSource.SAMPLED, tokens)

    def wants_prefix(self, model: str, pool: str) -> bool:
        return self.prefixes

    def decide(self, request: InferenceRequest) -> Decision | Refusal:
        self.requests.append(request)
        if self.fault is not None:
            raise self.fault
        if request.model == "missing":
            return Refusal(RefusalReason.UNKNOWN_MODEL)
        if request.model == "empty":
            return Refusal(RefusalReason.NO_ENDPOINTS, "default")
        self.live.add(request.id)
        reservation = Reservation(request.id, "default", ADDRESSES[0], request.prompt.tokens, 1, 0.0)
        return Decision("default", "random", ADDRESSES, reservation)

    def delivered(self, reservation_id: str) -> None:
        assert reservation_id in self.live
        self.handed_over.append(reservation_id)

    def abandon(self, reservation_id: str) -> None:
        self.live.remove(reservation_id)
        self.abandoned.append(reservation_id)

    def refused(self, api: str, model: str, pool: str, status: int, reason: str) -> None:
        self.refusals.append((api, model, pool, status, reason))
