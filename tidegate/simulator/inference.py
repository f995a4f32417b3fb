"""The routes that compute: chat, completions, embeddings; from the HTTP request to the model of the engine and back."""

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from typing import NamedTuple

from aiohttp import web

from tidegate.simulator import errors, openai_answers, openai_requests
from tidegate.simulator.batching import QueueFullError
from tidegate.simulator.live import Inbox, LiveEngine, Update
from tidegate.simulator.openai_answers import ChatWording, CompletionWording, Text, Usage, Wording
from tidegate.simulator.openai_requests import ChatBody, CompletionBody, EmbeddingBody, Generation
from tidegate.simulator.prompts import TOKEN_BYTES, Answer, block_keys, draw_output_tokens
from tidegate.simulator.sequence import EngineRequest
from tidegate.simulator.settings import EngineSettings
from tidegate.simulator.stats import FinishReason

_COMMENT_SECONDS = 1.0

_DIMENSIONS = 256
"""Numbers in an embedding unless the request says otherwise; a model of this size has 4,096."""


class _Sequence(NamedTuple):
    """One answer that is being computed."""

    request: EngineRequest
    answer: Answer


class Inference:
    """The handlers of one engine."""

    def __init__(self, engine: LiveEngine, settings: EngineSettings) -> None:
        """Answer with what ``engine`` computes."""
        self.inflight = 0
        """HTTP requests under way here, as ``/load`` tells."""
        self._engine = engine
        self._settings = settings
        self._told = settings.kv_events_port is not None
        self._lengths = random.Random(settings.seed)  # noqa: S311  not for secrets
        self._failures = random.Random(f"failures {settings.seed}")  # noqa: S311
        self._numbers = random.Random(f"ids {settings.seed} {time.time_ns()}")  # noqa: S311

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Answer ``POST /v1/chat/completions``."""
        body = openai_requests.parse(ChatBody, request.content_type, await request.read(), self._settings.model)
        wanted = openai_requests.chat(body, self._settings.context_tokens)
        number = self._number()
        return await self._generate(
            request, number, wanted, ChatWording(number, int(time.time()), self._settings.model, wanted.stream)
        )

    async def completion(self, request: web.Request) -> web.StreamResponse:
        """Answer ``POST /v1/completions``."""
        body = openai_requests.parse(CompletionBody, request.content_type, await request.read(), self._settings.model)
        wanted = openai_requests.completion(body, self._settings.context_tokens)
        number = self._number()
        return await self._generate(
            request, number, wanted, CompletionWording(number, int(time.time()), self._settings.model)
        )

    async def embedding(self, request: web.Request) -> web.StreamResponse:
        """Answer ``POST /v1/embeddings``: prefill without an answer. A vLLM that generates text has no such route."""
        body = openai_requests.parse(EmbeddingBody, request.content_type, await request.read(), self._settings.model)
        prompts = openai_requests.embedding(body, self._settings.context_tokens)
        number = self._number()
        requests = [
            EngineRequest(f"{number}-{at}", len(prompt) // TOKEN_BYTES, 0, 0, block_keys(prompt, told=self._told))
            for at, prompt in enumerate(prompts)
        ]
        inbox = self._submit(requests)
        try:
            ends = await _ends(inbox, len(requests))
        finally:
            self._engine.abort(requests)
        usage = Usage(sum(each.prompt_tokens for each in requests), 0, sum(end.cached_tokens for end in ends))
        dimensions = body.dimensions or _DIMENSIONS
        vectors = [openai_answers.embedding(prompt, dimensions, body.encoding_format) for prompt in prompts]
        text = openai_answers.embeddings(number, int(time.time()), self._settings.model, vectors, usage)
        return errors.json_response(text)

    def _number(self) -> str:
        return f"{self._numbers.getrandbits(64):016x}"

    def _submit(self, requests: Sequence[EngineRequest]) -> Inbox:
        if self._engine.faults.unloaded:
            raise errors.unknown_model(self._settings.model, "none")
        if self._failures.random() < self._engine.faults.fail_rate:
            raise errors.engine_failed()
        if 0 < self._engine.faults.oom_tokens < sum(request.prompt_tokens for request in requests):
            raise errors.out_of_memory()
        try:
            return self._engine.submit(requests)
        except QueueFullError:
            raise errors.queue_full() from None

    async def _generate(
        self, request: web.Request, number: str, wanted: Generation, wording: Wording
    ) -> web.StreamResponse:
        sequences = self._sequences(number, wanted)
        requests = [sequence.request for sequence in sequences]
        inbox = self._submit(requests)
        try:
            if wanted.stream:
                response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
                with contextlib.suppress(ConnectionResetError):  # so may it here
                    await self._stream(request, response, wanted, sequences, inbox, wording)
                return response
            ends = await _ends(inbox, len(sequences))
        finally:
            self._engine.abort(requests)  # the client may have left
        texts = [
            Text(sequence.answer.text(), end.reason or FinishReason.STOP)
            for sequence, end in zip(sequences, ends, strict=True)
        ]
        return errors.json_response(wording.whole(texts, _usage(wanted, sequences, ends)))

    def _sequences(self, number: str, wanted: Generation) -> list[_Sequence]:
        sequences: list[_Sequence] = []
        for prompt in wanted.prompts:
            prompt_tokens = len(prompt) // TOKEN_BYTES
            limit = wanted.max_tokens or self._settings.context_tokens - prompt_tokens
            for choice in range(wanted.choices):
                natural = draw_output_tokens(self._settings.mean_output_tokens, self._lengths)
                tokens = limit if wanted.ignore_eos else min(natural, limit)
                answer = Answer(prompt, choice, tokens, ends=tokens < limit)
                keys = block_keys(prompt + answer.encoded(), told=self._told)
                request = EngineRequest(f"{number}-{len(sequences)}", prompt_tokens, tokens, limit, keys)
                sequences.append(_Sequence(request, answer))
        return sequences

    async def _stream(
        self,
        request: web.Request,
        response: web.StreamResponse,
        wanted: Generation,
        sequences: list[_Sequence],
        inbox: Inbox,
        wording: Wording,
    ) -> None:
        """Send the head at once, as vLLM does, and the first event with the first token."""
        await response.prepare(request)
        sent = [0] * len(sequences)
        ends: dict[int, Update] = {}
        steps = 0
        while len(ends) < len(sequences):
            if await self._fails(response, request, steps):
                return
            steps += 1
            events: list[str] = []
            for update in await self._news(inbox, response):
                at, answer = update.sequence, sequences[update.sequence].answer
                opening = wording.opening(at) if sent[at] == 0 else ""
                if update.reason is None:
                    event = wording.token(at, answer.word(sent[at]))
                else:
                    ends[at] = update
                    fingerprint = not wanted.include_usage
                    event = wording.last_token(at, answer.word(sent[at]), update.reason, fingerprint)
                if wanted.continuous_usage:
                    prompt = sequences[at].request.prompt_tokens
                    opening = openai_answers.with_usage(opening, Usage(prompt, 0, 0))
                    event = openai_answers.with_usage(event, Usage(prompt, sent[at] + 1, 0))
                events += (opening, event)
                sent[at] += 1
            if len(ends) == len(sequences):
                if wanted.include_usage:
                    events.append(wording.usage(_usage(wanted, sequences, [ends[at] for at in sorted(ends)])))
                events.append(openai_answers.DONE)
            await response.write("".join(events).encode())
        await response.write_eof()

    async def _news(self, inbox: Inbox, response: web.StreamResponse) -> list[Update]:
        """Wait for news, with a comment now and then where that is wanted."""
        while self._engine.faults.comments:
            try:
                async with asyncio.timeout(_COMMENT_SECONDS):
                    return await inbox.take()
            except TimeoutError:
                await response.write(b": keep-alive\n\n")
        return await inbox.take()

    async def _fails(self, response: web.StreamResponse, request: web.Request, steps: int) -> bool:
        """End a stream that is to fail after so many ``steps``; return whether it was."""
        faults = self._engine.faults
        if faults.break_after and steps >= faults.break_after and request.transport is not None:
            request.transport.abort()
            return True
        if faults.error_after and steps >= faults.error_after:
            await response.write(errors.engine_failed().event().encode())
            await response.write_eof()
            return True
        return False


async def _ends(inbox: Inbox, sequences: int) -> list[Update]:
    """Wait until all ``sequences`` have ended; return their last updates in order."""
    ends: dict[int, Update] = {}
    while len(ends) < sequences:
        ends |= {update.sequence: update for update in await inbox.take() if update.reason is not None}
    return [ends[at] for at in sorted(ends)]


def _usage(wanted: Generation, sequences: Sequence[_Sequence], ends: Sequence[Update]) -> Usage:
    """Count each prompt once, however many answers it has."""
    firsts = range(0, len(sequences), wanted.choices)
    return Usage(
        prompt=sum(sequences[at].request.prompt_tokens for at in firsts),
        completion=sum(sequence.request.output_tokens for sequence in sequences),
        cached=sum(ends[at].cached_tokens for at in firsts),
    )
