"""What the request path asks of the rest of the program; the composition root provides it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from extproc.body import ParsedBody
from extproc.intake import Intake
from extproc.sessions import SessionKeys
from tidegate.scheduling.caller import Caller
from tidegate.scheduling.dispatch import Decision, Refusal
from tidegate.scheduling.line import Asker, Turnaway
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.routes import Routes
from tidegate.tokens.count import TokenCount
from tidegate.tokens.prefix import Prefix
from tidegate.tokens.prompt import Prompt

NO_OBJECTIVES: Final[Mapping[str, int]] = {}


def _nothing(_: str) -> bool:
    return False


class Catalogue(NamedTuple):
    """What is served, as far as the configuration writes it out.

    Attributes:
        models: the models' names; what a pattern matches is not among them.
        created: since when they are served, in Unix seconds.
        unknown_paths: the pool that takes what comes on paths that are not known; empty where that is refused.
        injecting: the pools whose streams are asked for their usage where the client did not ask.
        reading: the pools whose answers pass through here, so that what the client did not ask for can be kept back.
        serves: whether a model is served that is not among ``models``, because a pattern matches it.
        sessions: by what sessions are known.
        routes: what goes to a pool whatever the models' patterns say; ``None`` where there is nothing of the kind.
        fingerprints: whether requests are to be known again.
        objectives: the priorities that requests may ask for, by name.
    """

    models: Sequence[str] = ()
    created: int = 0
    unknown_paths: str = ""
    injecting: frozenset[str] = frozenset()
    reading: frozenset[str] = frozenset()
    serves: Callable[[str], bool] = _nothing
    sessions: SessionKeys = SessionKeys()
    routes: Routes | None = None
    fingerprints: bool = False
    objectives: Mapping[str, int] = NO_OBJECTIVES


class Gate(Protocol):
    """Where it is asked who a request comes from, and whether they may have it now."""

    def identify(self, headers: Mapping[str, str]) -> Caller:
        """Return who asks, by the request's headers.

        Raises:
            ApiError: 401, that cannot be said.
        """
        ...

    async def admit(self, request: InferenceRequest, caller: Caller) -> Mapping[str, str]:
        """Take what ``request`` will probably cost from what ``caller`` may use; return what they are to be told.

        Bounded in time. What was taken when the caller is cancelled is given back by ``withdraw``.

        Raises:
            ApiError: 429, a limit is in the way; nothing was taken.
        """
        ...

    def withdraw(self, request_id: str) -> None:
        """Give back what was taken for a request that goes nowhere, unless that was done. Never raises."""
        ...


class Wait(Protocol):
    """A request that waits for room."""

    @property
    def seconds(self) -> float:
        """For how long it may wait."""
        ...

    @property
    def estimate(self) -> float | None:
        """For how many seconds it probably will; ``None`` is unknown."""
        ...

    async def over(self) -> Decision | Refusal | Turnaway:
        """Return what becomes of it, within ``seconds``. A decision holds a reservation, which is then the caller's."""
        ...

    def leave(self) -> None:
        """Take it out, whose client left: nothing is held for it any more that ``over`` has not returned."""
        ...


class WaitingRoom(Protocol):
    """Where requests wait for room in their pools."""

    def ask(self, request: InferenceRequest, asker: Asker) -> Decision | Refusal | Turnaway | Wait:
        """Decide on ``request``, now if it is its turn. Whoever has a ``Wait`` leaves it in the end."""
        ...

    def wait(self, request: InferenceRequest, asker: Asker) -> Decision | Refusal | Turnaway | Wait:
        """Do the same with a request that a refusal says there is no room for, as that has it."""
        ...


class ToldPrefixes(Protocol):
    """The beginnings of prompts for engines that tell what they cache."""

    def __bool__(self) -> bool:
        """Return whether there is any such engine."""
        ...

    async def beginning(self, parsed: ParsedBody, pool: str) -> Prefix | None:
        """Return that of one request; ``None`` where its engines are none of these. Never raises; bounded in time."""
        ...


class Desk(Protocol):
    """Where a request is counted and decided."""

    @property
    def gate(self) -> Gate | None:
        """What asks who comes; ``None`` where everybody may."""
        ...

    @property
    def waiting_room(self) -> WaitingRoom | None:
        """Where requests wait for room; ``None`` where they do not."""
        ...

    @property
    def intake(self) -> Intake:
        """What reads the bodies."""
        ...

    @property
    def told_prefixes(self) -> ToldPrefixes:
        """What knows prompts' beginnings as engines tell of them."""
        ...

    def catalogue(self) -> Catalogue:
        """Return what is served now."""
        ...

    def new_id(self, request_id: str) -> str:
        """Return an id that no request ever had, given the ``x-request-id``, empty when there is none."""
        ...

    async def count(self, model: str, prompt: Prompt, pool: str = "") -> TokenCount:
        """Count all tokens of ``prompt`` as ``model`` would. Never raises; bounded in time.

        ``pool`` is the one that will serve it; empty where the model says which it is.
        """
        ...

    def wants_prefix(self, model: str, pool: str) -> bool:
        """Return whether a request's prefix matters; ``pool`` is empty where the model says which it is."""
        ...

    def decide(self, request: InferenceRequest) -> Decision | Refusal:
        """Decide on ``request``. A decision holds a reservation, which is the caller's until it is delivered."""
        ...

    def delivered(self, reservation_id: str) -> None:
        """Take note that a decision reached Envoy, and that its reservation is the access log's now. Never raises."""
        ...

    def abandon(self, reservation_id: str) -> None:
        """Release a reservation whose decision did not reach Envoy. Called at most once for each; never raises."""
        ...

    def refused(self, api: str, model: str, pool: str, status: int, reason: str) -> None:
        """Take note of a refusal.

        Args:
            api: the API's name; empty when the path is not known.
            model: the model's name as the client wrote it, which nothing bounds but its length; empty when not known.
            pool: the pool; empty when none was found.
            status: the HTTP status of the answer.
            reason: one of few fixed words.
        """
        ...
