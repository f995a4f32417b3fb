"""One request at the endpoint picker: what becomes known of it, and what is held for it."""

import asyncio
from collections.abc import Mapping

from extproc import affinity, passthrough, picker_codec
from extproc.answer import Answer
from extproc.apis import PASSED_ON, Api, match
from extproc.body import ParsedBody
from extproc.desk import Desk
from extproc.errors import RETRY_AFTER_SECONDS, SERVICE_UNAVAILABLE, ApiError, Shape, of_refusal, shape_of
from extproc.picker_gateway import Gateway, Picked
from extproc.picker_messages import BodyMode, RequestHeaders, ResponseHeaders
from extproc.picker_stream import Event
from extproc.restoring import Restored
from extproc.routed import Who, count, follow
from extproc.stream import LocalProtocolError
from tidegate import addresses
from tidegate.scheduling.dispatch import Decision, Refusal
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.subset import Subset
from tidegate.tokens import prefix
from tidegate.tokens.count import CountSource, TokenCount
from tidegate.tokens.prefix import Prefix


class PickerRequest:
    """One request, from its headers to the end of its answer."""

    def __init__(self, desk: Desk, gateway: Gateway, began: float) -> None:
        """Take in a request that ``began`` at this time, in seconds."""
        self._desk = desk
        self._gateway = gateway
        self._began = began
        self._headers = RequestHeaders({})
        self._api: Api | None = None
        self._coding: str | None = None
        self._model = ""
        self._pool = ""
        self._among: tuple[Subset, ...] = ()
        self._shape = Shape.OPENAI
        self._pieces: list[bytes] = []
        self._size = 0
        self._request: InferenceRequest | None = None
        self._decision: Decision | None = None
        self._delivered = False
        self._error: ApiError | None = None
        self._answer: bytes | None = None
        self._status = 0
        self._served = ""
        self._read: Answer | None = None
        self._asked = ""
        self._renamed: bytes | None = None
        self._restored: Restored | None = None

    @property
    def delivered(self) -> bool:
        """Whether the gateway has the decision."""
        return self._delivered

    # -- the request

    def match(self, message: RequestHeaders) -> Event:
        """Find the API, and rule out what the headers rule out."""
        self._headers = message
        headers = message.headers
        self._shape = shape_of(headers)
        try:
            catalogue = self._desk.catalogue()
            self._api = api = match(headers, pass_on=bool(catalogue.unknown_paths))
            if api is PASSED_ON:
                self._pool = catalogue.unknown_paths
            elif api.answer is not None:
                self._answer = api.answer(headers, catalogue)
            else:
                self._coding = self._desk.intake.coding(headers)
            if (self._announced() or 0) > self._gateway.settings.max_body_bytes:
                raise self._too_large()
        except ApiError as error:
            return self._refused(error)
        self._among = self._narrowed(message)
        # An answer of ours goes the way of a refusal: no decision, and the gateway is given what to say.
        return Event.MATCHED if self._answer is None else Event.REFUSED

    def _narrowed(self, message: RequestHeaders) -> tuple[Subset, ...]:
        among = [] if message.subset is None else [message.subset]
        wanted = message.headers.get(picker_codec.TEST_SELECTION)
        if wanted is not None and self._gateway.settings.obey_tests:
            among.append(Subset.of(wanted.split(",")))
        return tuple(among)

    def _announced(self) -> int | None:
        length = self._headers.headers.get("content-length", "")
        return int(length) if length.isascii() and length.isdigit() and len(length) < 16 else None

    def keep(self, piece: bytes) -> Event:
        """Keep a piece of the body, if there is room for it."""
        self._size += len(piece)
        within_limits = self._gateway.hold(len(piece))
        self._pieces.append(piece)
        if self._size > self._gateway.settings.max_body_bytes:
            return self._refused(self._too_large())
        if not within_limits:
            return self._refused(
                ApiError(
                    429,
                    "Too many large requests are being received at the moment. Try again shortly.",
                    reason="saturated",
                    kind="rate_limit_error",
                    code="overloaded",
                    headers={"retry-after": str(RETRY_AFTER_SECONDS)},
                )
            )
        return Event.KEPT

    def _too_large(self) -> ApiError:
        most = self._gateway.settings.max_body_bytes
        return ApiError(
            413,
            f"The request's body is too large: it may have {most} bytes.",
            reason="request_too_large",
            code="request_too_large",
        )

    def too_slow(self) -> Event:
        """Refuse a request whose body does not end."""
        return self._refused(
            ApiError(408, "The request's body did not come in time.", reason="upload_timeout", code="request_timeout")
        )

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers."""
        return self._headers.headers

    @property
    def body(self) -> bytes:
        """The body that was kept, whole."""
        if len(self._pieces) > 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0] if self._pieces else b""

    @property
    def sent_on(self) -> bytes:
        """The body that the engine is to have."""
        return self.body if self._renamed is None else self._renamed

    def drop_body(self) -> None:
        """Forget the body."""
        self._gateway.hold(-self._size)
        self._pieces, self._size, self._renamed = [], 0, None

    async def decide(self, *, partial: BodyMode | None = None) -> Event:
        """Choose an endpoint by the body that was kept."""
        if self._api is None or self._api.parse is None:
            raise LocalProtocolError("a decision before there was an API")
        try:
            async with asyncio.timeout(self._gateway.settings.decision_seconds):
                try:
                    parse = self._desk.catalogue().sessions.reading(self._api.parse)
                    parsed = await self._desk.intake.read(parse, self.body, self._coding)
                except ApiError:
                    # What was cut cannot be read, and its model not be known.
                    if partial is not BodyMode.BUFFERED_PARTIAL:
                        raise
                    return self._place(*self._unread(), unread=True)
                parsed, prompt = await self._routed(self._api, parsed)
                beginning = prefix.NONE
                if self._desk.wants_prefix(parsed.model, self._pool):
                    beginning = await affinity.begun(self._desk, parsed, prompt.tokens, self._pool)
        except ApiError as error:
            return self._refused(error)
        except TimeoutError:
            return self._refused(
                ApiError(
                    504,
                    "No endpoint was chosen in time. Try again shortly.",
                    reason="decision_timeout",
                    kind=SERVICE_UNAVAILABLE,
                    code="timeout",
                    headers={"retry-after": str(RETRY_AFTER_SECONDS)},
                )
            )
        return self._place(parsed, prompt, beginning)

    async def _routed(self, api: Api, parsed: ParsedBody) -> tuple[ParsedBody, TokenCount]:
        """Follow the route that the request takes, if there is one; return what it asks for then, and its tokens."""
        self._asked = parsed.model
        routes = self._desk.catalogue().routes
        if routes is None:
            return parsed, await count(self._desk, api, parsed)
        who = Who(self._pool, self._desk.catalogue().sessions.of_headers(self.headers) or parsed.session)
        found = await follow(routes, self._desk, api, self, self._coding, parsed, who)
        self._pool, self._renamed = found.pool, found.body
        if found.body is not None and parsed.model:
            self._restored = Restored(found.parsed.model, parsed.model)
        return found.parsed, found.prompt

    def decide_unread(self) -> Event:
        """Choose an endpoint by the headers alone."""
        return self._place(*self._unread(), unread=True)

    def _unread(self) -> tuple[ParsedBody, TokenCount]:
        """Return what is taken for the body of a request that we do not get to read."""
        size = self._announced() or self._size
        tokens = min(size // passthrough.BYTES_PER_TOKEN, passthrough.MAX_ESTIMATED_TOKENS)
        return ParsedBody(model="", texts=()), TokenCount(tokens, CountSource.BYTES)

    def _place(
        self, parsed: ParsedBody, prompt: TokenCount, beginning: Prefix = prefix.NONE, *, unread: bool = False
    ) -> Event:
        if self._api is None:
            raise LocalProtocolError("a decision before there was an API")
        self._model = parsed.model
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
            session=self._desk.catalogue().sessions.of_headers(self._headers.headers) or parsed.session,
            among=self._among,
        )
        outcome = self._desk.decide(self._request)
        if isinstance(outcome, Refusal):
            self._pool = outcome.pool
            return self._refused(_not_shown() if unread and not outcome.pool else of_refusal(outcome, self._asked))
        self._decision = outcome
        return Event.DECIDED

    def _refused(self, error: ApiError) -> Event:
        self._error = error.kept()
        api = "" if self._api is None else self._api.name
        self._desk.refused(api, self._model, self._pool, error.status, error.reason)
        return Event.REFUSED

    @property
    def _request_id(self) -> str:
        return self._headers.headers.get("x-request-id", "")

    # -- the replies

    def decision_on_headers(self) -> bytes:
        """Return the decision as the reply to the headers."""
        return picker_codec.decision_on_headers(self._decided.addresses, self.headers, self._renamed)

    def decision_on_body(self) -> bytes:
        """Return the decision as the reply to the body."""
        return picker_codec.decision_on_body(self._decided.addresses, self.headers, self._renamed)

    @property
    def _decided(self) -> Decision:
        if self._decision is None:
            raise LocalProtocolError("a reply before there was a decision")
        return self._decision

    def refusal(self) -> bytes:
        """Return what the gateway is to answer by itself."""
        if self._answer is not None:
            return picker_codec.answer(self._answer)
        if self._error is None:
            raise LocalProtocolError("a refusal without a reason")
        return picker_codec.refusal(self._error, self._shape)

    def settled(self) -> None:
        """Take note that the gateway has what it was to have."""
        self.drop_body()
        if self._decision is not None and not self._delivered:
            self._delivered = True
            self._gateway.sent(self._decision.reservation.id)

    # -- the response

    def responded(self, message: ResponseHeaders, *, shown: bool, ours: bool = False) -> bytes:
        """Take in the answer's headers; return the reply to them.

        ``shown`` says that its body is to come as well, and ``ours`` that we send it on, and may change it.
        """
        headers = message.headers
        if not ours or "content-encoding" in headers:
            self._restored = None
        if shown and self._delivered:
            self._read = Answer(headers.get("content-type", ""), headers.get("content-encoding", ""))
        status = headers.get(":status", "")
        self._status = int(status) if status.isascii() and status.isdigit() and len(status) == 3 else 0
        try:
            self._served = addresses.ip_and_port(message.served)
        except ValueError:
            self._served = ""
        if not self._delivered:
            self.drop_body()
        elif self._served and self._served != self._decided.addresses[0]:
            self._gateway.served_by(self._decided, self._served)
        obeyed = picker_codec.TEST_SELECTION in self._headers.headers and self._gateway.settings.obey_tests
        told = {picker_codec.TEST_SERVED: self._served} if self._served and obeyed else {}
        return picker_codec.pass_response_headers(headers, told, resized=self._restored is not None)

    def restored(self, piece: bytes, *, end: bool) -> bytes:
        """Return what the client is to have of a piece of the answer: the model by the name that it asked for."""
        return piece if self._restored is None else self._restored.feed(piece, end=end)

    def read(self, piece: bytes, now: float) -> None:
        """Take in a piece of the answer, at ``now`` in seconds."""
        if self._read is not None:
            self._read.feed(piece, now)

    def leave(self, now: float, *, ended: bool, whole: bool) -> None:
        """Give back what is held: the stream has ended, at ``now`` in seconds.

        ``ended`` says that the answer's end was seen, ``whole`` that all was that is shown of it.
        """
        self.drop_body()
        if self._decision is None or self._request is None or self._api is None:
            return
        if self._read is not None:
            self._read.end(now)
        first_token = None if self._read is None else self._read.first_token_at
        if not self._delivered:
            self._desk.abandon(self._decision.reservation.id)
        else:
            self._gateway.ended(
                Picked(
                    request=self._request,
                    decision=self._decision,
                    usage=self._api.usage,
                    request_id=self._request_id,
                    status=self._status,
                    served=self._served,
                    whole=whole,
                    seconds=now - self._began if ended else None,
                    first_token_seconds=None if first_token is None else first_token - self._began,
                    answer=self._read,
                )
            )
        self._decision = None


def _not_shown() -> ApiError:
    return ApiError(
        503,
        "Which model is asked for is not known here: the gateway does not show the body. It is to be set up so that it "
        "does, in full duplex or buffered.",
        reason="body_not_shown",
        kind=SERVICE_UNAVAILABLE,
        code="body_not_shown",
    )
