"""One request's exchange with Envoy: bytes in, bytes out, whatever the transport.

Between the decision and its delivery, the reservation is the exchange's: if the reply is not taken (the client left,
the stream was cancelled, the reply could not be written) it is released here. From the delivery on it belongs to the
access log and to the lease.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from extproc import affinity, claims, codec, deadline, passing_codec, waiting
from extproc.apis import PASSED_ON, Api, Parse, engine_path, match
from extproc.body import ParsedBody
from extproc.desk import Desk, Wait
from extproc.errors import ApiError, Shape, of_refusal, shape_of
from extproc.fingerprint import fingerprint
from extproc.injection import injected
from extproc.passage import Passage
from extproc.passing import passing
from extproc.routed import Routed, Who, count, follow
from extproc.stream import Action, Event, LocalProtocolError, Stream
from extproc.usage import Usage
from tidegate.scheduling.dispatch import Decision, Refusal
from tidegate.scheduling.line import Turnaway
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.routes import Routes
from tidegate.tokens import prefix

PATIENCE_SECONDS = 3.0
"""How much longer than a request may wait for its turn Envoy waits for what became of it."""


class Abandoned(Exception):  # noqa: N818  nothing is in error: the client left
    """Envoy ended its side of the stream before there was a decision."""


async def exchange(  # noqa: C901  one case for each action
    messages: AsyncIterator[bytes], desk: Desk, stream: Stream | None = None
) -> AsyncGenerator[bytes, None]:
    """Answer the ``messages`` (``ProcessingRequest``) of one stream with replies (``ProcessingResponse``).

    The generator ends after the last reply, and the stream is then to be closed with OK. A reply counts as delivered
    when the next one is asked for; whoever does not ask closes the generator (``contextlib.aclosing``), at once and not
    when it is collected. On any exception the stream is to be closed with an error status.

    Args:
        messages: what Envoy sends.
        desk: who counts and decides.
        stream: a fresh one, for callers that want to know how far it came.

    Raises:
        PeerProtocolError: Envoy does not keep to the protocol.
        Abandoned: Envoy ended its side.
    """
    stream = Stream() if stream is None else stream
    visit = _Visit(desk)
    actions: tuple[Action, ...] = (Action.RECEIVE,)
    try:
        while actions:
            todo, actions = actions, ()
            for action in todo:
                match action:
                    case Action.RECEIVE:
                        message = await anext(messages, None)
                        actions = stream.receive(None if message is None else codec.decode(message))
                    case Action.MATCH:
                        actions = stream.step(visit.match(stream))
                    case Action.DECIDE:
                        event = await visit.decide(stream)
                        if visit.wait is not None:
                            yield codec.more_time(visit.wait.seconds + PATIENCE_SECONDS)
                            event = await visit.waited(stream)
                        actions = stream.step(event)
                    case Action.ROUTE_BODY | Action.ROUTE_HEADERS | Action.REFUSE:
                        yield visit.reply(action)
                        visit.delivered()
                        actions = stream.step(Event.DELIVERED)
                    case Action.CONTINUE:
                        yield codec.CONTINUE
                    case Action.PASS:
                        passed = passing(stream.answer, messages, passing_codec.piece)
                        async with contextlib.aclosing(passed) as replies:
                            async for reply in replies:
                                yield passing_codec.encode(reply)
                        actions = stream.step(Event.DELIVERED)
                    case Action.GIVE_UP:
                        raise Abandoned
    finally:
        visit.leave()


class _Visit:
    """What has become known of one request, and what is held for it."""

    __slots__ = (
        "_answer",
        "_api",
        "_asked",
        "_bounds",
        "_coding",
        "_deadline",
        "_decision",
        "_desk",
        "_error",
        "_held",
        "_known",
        "_passage",
        "_path",
        "_pool",
        "_request",
        "_request_id",
        "_rewritten",
        "_route",
        "_routes",
        "_session",
        "_shape",
        "_timeout",
        "_told",
        "wait",
    )

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._api: Api | None = None
        self._coding: str | None = None
        self._timeout: float | None = None
        self._deadline = 0.0
        self._known: dict[str, str] = {}
        self._request: InferenceRequest | None = None
        self._decision: Decision | None = None
        self._answer: bytes | None = None
        self._error: ApiError | None = None
        self._shape = Shape.OPENAI
        self._held: str | None = None
        self._rewritten: codec.Rewritten | None = None
        self._pool = ""
        self._path = self._bounds = ""
        self._route = ""
        self._routes: Routes | None = None
        self._request_id = ""
        self._session = ""
        self._passage: Passage | None = None
        self._asked = ""
        self._told: dict[str, str] | None = None
        self.wait: Wait | None = None

    def match(self, stream: Stream) -> Event:
        self._request_id = stream.headers.get("x-request-id", "")
        self._shape = shape_of(stream.headers)
        try:
            catalogue = self._desk.catalogue()
            self._session = catalogue.sessions.of_headers(stream.headers)
            self._routes = routes = catalogue.routes
            self._api = api = match(stream.headers, pass_on=bool(catalogue.unknown_paths), routes=routes)
            self._known["api"] = api.name
            if routes is not None and (path := engine_path(api)):
                self._path, self._shape = path, shape_of({":path": path})
            if (gate := self._desk.gate) is not None:
                self._passage = Passage(gate, stream.headers)
            if api is PASSED_ON:
                self._pool = catalogue.unknown_paths
            elif api.answer is not None:
                self._answer = api.answer(stream.headers, catalogue)
            else:
                self._coding = self._desk.intake.coding(stream.headers)
                self._timeout = deadline.of_headers(stream.headers)
        except ApiError as error:
            return self._refused(error)
        if self._timeout is not None:
            self._deadline = asyncio.get_running_loop().time() + self._timeout
        # An answer of ours goes the way of a refusal: no decision, and Envoy is given what to say.
        return Event.MATCHED if self._answer is None else Event.REFUSED

    async def decide(self, stream: Stream) -> Event:
        try:
            if self._timeout is None:
                return await self._decide(stream)
            await asyncio.sleep(0)  # a timeout needs a task
            async with asyncio.timeout_at(self._deadline):
                # The client may have taken all the time there was to send it.
                await asyncio.sleep(0)
                return await self._decide(stream)
        except TimeoutError:
            return self._refused(deadline.missed())
        except ApiError as error:
            return self._refused(error)

    async def waited(self, stream: Stream) -> Event:
        """Return what became of the wait, once it is over."""
        if self.wait is None or self._api is None or self._request is None:
            raise LocalProtocolError("a wait for nothing")
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            outcome = await self.wait.over()
            if not isinstance(outcome, Decision):
                if isinstance(outcome, Turnaway) and self._timeout is not None and deadline.is_over(self._deadline):
                    raise deadline.missed()
                return self._not_decided(outcome)
            self._decision, self._held = outcome, outcome.reservation.id
            self._told = waiting.told(clock() - began, self.wait.estimate)
            if self._request.stream and self._api.usage is Usage.CHAT_COMPLETIONS and self._coding is None:
                await self._ask_for_usage(stream, outcome.pool)
        except ApiError as error:
            return self._refused(error)
        return Event.DECIDED

    async def _decide(self, stream: Stream) -> Event:
        if self._api is None or self._api.parse is None:
            raise LocalProtocolError("a decision before there was an API")
        parsed = await self._desk.intake.read(self._reading(self._api.parse), stream.body, self._coding)
        self._known["model"] = self._asked = parsed.model
        if self._routes is not None:
            found = await self._follow(self._routes, self._api, stream, parsed)
            parsed, prompt = found.parsed, found.prompt
        else:
            prompt = await count(self._desk, self._api, parsed)
        beginning = prefix.NONE
        if self._desk.wants_prefix(parsed.model, self._pool):
            salt = "" if self._passage is None else self._passage.caller.salt
            beginning = await affinity.begun(self._desk, parsed, prompt.tokens, self._pool, salt)
        limit = parsed.max_output_tokens
        self._request = InferenceRequest(
            id=self._desk.new_id(self._request_id),
            api=self._api.name,
            model=parsed.model,
            prompt=prompt,
            max_output_tokens=None if limit is None else limit * parsed.choices,
            stream=parsed.stream,
            pool=self._pool,
            prefix=beginning.hashes,
            block_tokens=beginning.block_tokens,
            session=self._session or parsed.session,
            route=self._route,
            fingerprint=fingerprint(stream.body) if self._desk.catalogue().fingerprints else 0,
        )
        if self._passage is not None:
            await self._passage.enter(self._request)
        outcome: Decision | Refusal | Turnaway | Wait
        if waiting.is_batch(stream.headers, self._passage, self._desk.catalogue().objectives):
            outcome = self._queue(stream, self._request, refused=False)
        else:
            outcome = self._desk.decide(self._request)
            if isinstance(outcome, Refusal) and outcome.request is not None:
                outcome = self._queue(stream, outcome.request, refused=True)
        if not isinstance(outcome, Decision):
            return self._not_decided(outcome)
        self._decision, self._held = outcome, outcome.reservation.id
        if parsed.stream and self._api.usage is Usage.CHAT_COMPLETIONS and self._coding is None:
            await self._ask_for_usage(stream, outcome.pool)
        return Event.DECIDED

    def _queue(
        self, stream: Stream, request: InferenceRequest, *, refused: bool
    ) -> Decision | Refusal | Turnaway | Wait:
        """Have a request wait for its turn that was ``refused`` for want of room, or is not to look for it itself."""
        if (room := self._desk.waiting_room) is None:
            return self._desk.decide(request)
        until = None if self._timeout is None else self._deadline
        named = self._desk.catalogue().objectives
        asker = waiting.asker(stream.headers, self._passage, len(stream.body), until, named)
        return room.wait(request, asker) if refused else room.ask(request, asker)

    def _not_decided(self, outcome: Refusal | Turnaway | Wait) -> Event:
        if not isinstance(outcome, Refusal | Turnaway):
            self.wait = outcome
            return Event.DECIDED  # which is what is waited for
        if outcome.pool:
            self._known["pool"] = outcome.pool
        raise of_refusal(outcome, self._asked) if isinstance(outcome, Refusal) else waiting.turned_away(outcome)

    def _reading(self, parse: Parse) -> Parse:
        """Return ``parse`` with what the configuration has read besides."""
        parse = self._desk.catalogue().sessions.reading(parse)
        return parse if self._passage is None else claims.checked(parse)

    async def _follow(self, routes: Routes, api: Api, stream: Stream, parsed: ParsedBody) -> Routed:
        tenant = "" if self._passage is None else self._passage.caller.tenant
        who = Who(self._pool, self._session or parsed.session, tenant)
        found = await follow(routes, self._desk, api, stream, self._coding, parsed, who)
        self._pool, self._route, self._path = found.pool, found.route, found.path or self._path
        self._bounds = found.bounds
        self._known["model"] = found.parsed.model
        if found.body is not None:
            self._rewritten = codec.Rewritten(found.body, "content-length" in stream.headers, withhold=False)
        return found

    async def _ask_for_usage(self, stream: Stream, pool: str) -> None:
        """Have the engine tell what the stream cost, where the pool is to and the client did not ask."""
        catalogue = self._desk.catalogue()
        sent = stream.body if self._rewritten is None else self._rewritten.body
        if pool in catalogue.injecting and (body := await self._desk.intake.rewrite(injected, sent)):
            with_length = "content-length" in stream.headers
            self._rewritten = codec.Rewritten(body, with_length, withhold=pool in catalogue.reading)

    def _refused(self, error: ApiError) -> Event:
        self._error = error.kept()
        known = self._known.get
        self._desk.refused(known("api", ""), known("model", ""), known("pool", ""), error.status, error.reason)
        return Event.REFUSED

    def reply(self, action: Action) -> bytes:
        if self._answer is not None:
            return codec.answer(self._answer, self._known)
        if self._error is not None:
            return codec.refusal(self._error, self._known, self._shape)
        if self._api is None or self._request is None or self._decision is None:
            raise LocalProtocolError("a reply before there was a decision")
        usage, read = self._api.usage, self._decision.pool in self._desk.catalogue().reading
        about = self._request, self._decision, usage
        told = None if self._passage is None else self._passage.told
        if self._told is not None:
            told = self._told if told is None else {**told, **self._told}
        way = codec.Way(self._timeout, self._path, self._bounds)
        if action is Action.ROUTE_HEADERS:
            return codec.decision_on_headers(*about, way, read=read, told=told)
        return codec.decision_on_body(*about, way, self._rewritten, read=read, told=told)

    def delivered(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._desk.delivered(held)
            if self._passage is not None:
                self._passage.delivered()

    def leave(self) -> None:
        if self.wait is not None:
            self.wait.leave()
        if self._held is not None:
            held, self._held = self._held, None
            self._desk.abandon(held)
        if self._passage is not None:
            self._passage.leave()
