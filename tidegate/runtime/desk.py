"""The desk at which ext_proc asks: counting, deciding, and taking back what was not delivered."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from extproc.desk import NO_OBJECTIVES, Catalogue, Gate, ToldPrefixes, WaitingRoom
from extproc.intake import Intake
from extproc.sessions import SessionKeys
from extproc.transport import Outcome
from tidegate.config import Pool
from tidegate.fleet.events import RequestReserved
from tidegate.runtime.figures import Figures
from tidegate.runtime.prompts import PromptCounter
from tidegate.scheduling.dispatch import Decision, Dispatcher, Refusal
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.routes import Route, Routes
from tidegate.scheduling.routing import fits
from tidegate.tokens.count import TokenCount
from tidegate.tokens.prompt import Prompt


class Journal(Protocol):
    """Takes note of what becomes of reservations. No method may raise."""

    def reserved(self, event: RequestReserved) -> None:
        """A decision made a reservation; the fleet at hand counts it already."""
        ...

    def delivered(self, reservation_id: str) -> None:
        """That decision reached Envoy."""
        ...

    def abandoned(self, reservation_id: str) -> None:
        """It did not, and the reservation is to be released."""
        ...


class Desk:
    """Answers the questions of the request path, and counts what happens there."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        prompts: PromptCounter,
        figures: Figures,
        new_id: Callable[[str], str],
        journal: Journal,
        clock: Callable[[], float],
        intake: Intake,
        told_prefixes: ToldPrefixes,
        *,
        started_at: int,
    ) -> None:
        """Read with ``intake``, count with ``prompts``, decide with ``dispatcher``.

        ``journal`` is told of reservations, whose ids come from ``new_id``, and ``figures`` counts. ``started_at``, in
        Unix seconds, is since when models are said to be served.
        """
        self.intake = intake
        self.gate: Gate | None = None
        self.waiting_room: WaitingRoom | None = None
        self.told_prefixes = told_prefixes
        self._dispatcher = dispatcher
        self._prompts = prompts
        self._figures = figures
        self._journal = journal
        self._clock = clock
        self._new_id = new_id
        self._catalogue = Catalogue((), started_at)

    def serve(
        self,
        pools: Iterable[Pool],
        unknown_paths: str,
        sessions: SessionKeys,
        *,
        routes: Sequence[Route] = (),
        fingerprints: bool = False,
        objectives: Mapping[str, int] = NO_OBJECTIVES,
    ) -> None:
        """Take over what ``pools`` serve, where patterns cannot be listed, and who takes ``unknown_paths``, if any.

        ``sessions`` says by what sessions are known. What ``routes`` lead anywhere by its model alone is served too.
        ``fingerprints``: requests are to be known again. ``objectives``: the priorities that they may ask for by name.
        """
        pools = tuple(pools)
        aliases = [route.model for route in routes if route.model and not (route.path or route.api or route.headers)]
        named = [model for pool in pools for model in (*pool.models, *pool.adapters)]
        written_out = dict.fromkeys(model for model in (*named, *aliases) if "*" not in model)
        self._catalogue = Catalogue(
            tuple(written_out),
            self._catalogue.created,
            unknown_paths,
            injecting=frozenset(pool.name for pool in pools if pool.injects_usage),
            reading=frozenset(pool.name for pool in pools if pool.usage == "stream"),
            serves=lambda model: (
                self._dispatcher.pool_of(model) is not None or any(fits(pattern, model) for pattern in aliases)
            ),
            sessions=sessions,
            routes=Routes(routes) if routes else None,
            fingerprints=fingerprints,
            objectives=objectives,
        )

    def catalogue(self) -> Catalogue:
        """Return what is served now."""
        return self._catalogue

    def new_id(self, request_id: str) -> str:
        """Return an id that was never given before, by this process or an earlier one."""
        return self._new_id(request_id)

    async def count(self, model: str, prompt: Prompt, pool: str = "") -> TokenCount:
        """Count the tokens of ``prompt`` as ``model`` would, in ``pool`` or where the model says."""
        return await self._prompts.count(model, prompt, pool)

    def wants_prefix(self, model: str, pool: str) -> bool:
        """Return whether the policy looks at what is cached of a prompt."""
        return self._dispatcher.wants_prefix(model, pool)

    def decide(self, request: InferenceRequest) -> Decision | Refusal:
        """Decide on ``request`` and reserve."""
        began = self._clock()
        decision = self._dispatcher.decide(request, began)
        self._figures.received(decision.pool)
        if isinstance(decision, Decision):
            self.decided(decision, request)
        self._figures.decided(self._clock() - began)
        return decision

    def decided(self, decision: Decision, request: InferenceRequest) -> None:
        """Take note of a decision on ``request``."""
        self._journal.reserved(RequestReserved(decision.reservation, request.prefix, request.block_tokens))
        self._figures.picked(decision.pool, decision.addresses[0], decision.policy)

    def delivered(self, reservation_id: str) -> None:
        """Take note that Envoy got a decision."""
        self._journal.delivered(reservation_id)

    def abandon(self, reservation_id: str) -> None:
        """Release what was reserved for a decision that Envoy never got."""
        self._journal.abandoned(reservation_id)

    def refused(self, api: str, model: str, pool: str, status: int, reason: str) -> None:  # noqa: ARG002
        """Count a refusal."""
        self._figures.refused(api, reason)

    def stream_started(self) -> None:
        """Count an exchange as open."""
        self._figures.ext_proc_opened()

    def stream_ended(self, outcome: Outcome) -> None:
        """Count it as ended."""
        self._figures.ext_proc_closed(outcome.value)
