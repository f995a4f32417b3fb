"""How a request would be decided now: the answer to ``tidegate explain --live``. Nothing is reserved or remembered."""

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated

import msgspec

from extproc import affinity, sessions
from extproc.body import ParsedBody
from tidegate.config import Config
from tidegate.config_routes import traffic
from tidegate.discovery import static
from tidegate.fleet.state import Fleet
from tidegate.runtime.decider import Decider
from tidegate.scheduling.dispatch import Dispatcher, Refusal, RefusalReason
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.routes import Routes, chosen
from tidegate.telemetry import decision_record
from tidegate.telemetry.admin import UnanswerableError
from tidegate.tokens import prefix
from tidegate.tokens.count import CountSource, TokenCount
from tidegate.tokens.estimate import by_bytes
from tidegate.tokens.prompt import Prompt

ID = "live"
"""Stands for the request, which has no id because it is never sent."""

CHAT, CHAT_PATH = "chat_completions", "/v1/chat/completions"

Count = Callable[[str, Prompt], Awaitable[TokenCount]]

Tokens = Annotated[int, msgspec.Meta(ge=0, le=100_000_000)]
Name = Annotated[str, msgspec.Meta(max_length=1_000)]


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked.

    Attributes:
        model: as a client would write it; empty where one pool serves all.
        prompt: its text, which is counted and looked for in what engines have cached.
        prompt_tokens: how many it has; without it, those of ``prompt``.
        max_tokens: the most tokens that the client would take; ``None`` for no limit.
        pool: the pool that a route would name; empty when the model says.
        session: the name of its session.
    """

    model: Name = ""
    prompt: str | None = None
    prompt_tokens: Tokens | None = None
    max_tokens: Tokens | None = None
    pool: Name = ""
    session: Name = ""


def _none() -> None:
    """There are no routes."""


async def _estimated(model: str, prompt: Prompt) -> TokenCount:  # noqa: ARG001  it is a ``Count``
    """Count by the number of bytes, where nobody in this process counts."""
    return TokenCount(by_bytes(prompt.texts), CountSource.BYTES)


class Inquiry:
    """Answers questions by a dispatcher's rules."""

    def __init__(
        self, dispatcher: Callable[[], Dispatcher], count: Count, routes: Callable[[], Routes | None] = _none
    ) -> None:
        """Ask whatever ``dispatcher`` returns, which is asked anew each time, and count prompts with ``count``.

        ``routes`` returns those that lead requests elsewhere than their models do; ``None`` for none.
        """
        self._dispatcher = dispatcher
        self._count = count
        self._routes = routes

    @classmethod
    def of(cls, decider: Decider, *, routed: bool) -> "Inquiry":
        """Answer as ``decider`` decides; ``routed`` where it follows routes."""
        routes = (lambda: decider.desk.catalogue().routes) if routed else _none
        return cls(lambda: decider.dispatcher, decider.prompts.count, routes)

    @classmethod
    def beside_workers(cls, fleet: Fleet, config: Callable[[], Config]) -> "Inquiry":
        """Answer as workers decide by ``config`` over replicas of ``fleet``, but for what their policies remember."""

        def dispatcher() -> Dispatcher:
            made = Dispatcher(fleet, random.Random())  # noqa: S311  it settles ties
            made.configure(static.declared(config()), static.policies(config()))
            return made

        return cls(dispatcher, _estimated, lambda: Routes(traffic(config().routes)))

    async def answer(self, body: bytes) -> bytes:
        """Return a decision record of what would be decided on the request that ``body`` asks about.

        Raises:
            UnanswerableError: it is no question, or nothing could be decided.
        """
        question = _read(body)
        dispatcher = self._dispatcher()
        request = await self._request(question, dispatcher)
        explanation = dispatcher.explain(request, time.monotonic())
        if isinstance(explanation, Refusal):
            raise UnanswerableError(404, _said(explanation, question))
        case = explanation.case
        case = replace(case, addresses=explanation.order[: case.policy.destinations])
        return decision_record.encode(case, time.time())

    async def _request(self, question: Question, dispatcher: Dispatcher) -> InferenceRequest:
        parsed = ParsedBody(question.model, () if question.prompt is None else (question.prompt,))
        if question.prompt_tokens is not None:
            prompt = TokenCount(question.prompt_tokens, CountSource.EXACT)
        else:
            prompt = await self._count(question.model, parsed.prompt)
        question, route = self._led(question, prompt.tokens)
        parsed = parsed._replace(model=question.model)
        beginning = prefix.NONE
        if parsed.texts and dispatcher.wants_prefix(question.model, question.pool):
            beginning = affinity.beginning(parsed, prompt.tokens)
        return InferenceRequest(
            id=ID,
            api="completions",
            model=question.model,
            prompt=prompt,
            max_output_tokens=question.max_tokens,
            stream=True,
            pool=question.pool,
            prefix=beginning.hashes,
            block_tokens=beginning.block_tokens,
            session=sessions.hashed(question.session),
            route=route,
        )

    def _led(self, question: Question, tokens: int) -> tuple[Question, str]:
        """Return the question as a route leads it, as a chat on the usual path without headers, and the route's name.

        A split leads it to its largest side: asking takes nobody's turn.
        """
        routes = self._routes()
        if routes is None or question.pool:
            return question, ""
        route = chosen(routes.possible(CHAT_PATH, CHAT, {}, question.model), tokens)
        if route is None:
            return question, ""
        side = route.split.largest.rewrite_model if route.split is not None else ""
        model = side or route.rewrite_model or question.model
        return msgspec.structs.replace(question, pool=route.pool, model=model), route.name


def _read(body: bytes) -> Question:
    try:
        question = msgspec.json.decode(body, type=Question)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnanswerableError(400, f"not a question: {error}") from None
    if question.prompt is None and question.prompt_tokens is None:
        raise UnanswerableError(400, "not a question: expected prompt, prompt_tokens or both")
    return question


def _said(refusal: Refusal, question: Question) -> str:
    if refusal.reason is RefusalReason.UNKNOWN_MODEL:
        return f"no pool serves the model {question.model!r}"
    return f"there is no pool {question.pool!r}"
