"""What an answer's output came to, in tokens, where its engine did not say: inferred from its size, and marked as such.

How many bytes a token takes on the wire depends on the engine's form far more than on the text: a chunk of chat has 200
bytes around a word. Answers that told their usage teach it, for each pool, API and model.
"""

from collections.abc import Iterable
from typing import Final

from tidegate.telemetry.outcome import Outcome
from tidegate.telemetry.record import RequestRecord
from tidegate.tokens.correction import Corrections

STREAMED_BYTES: Final = 200
"""Bytes of a streamed answer for each token, until answers have taught better. Chat from vLLM has 215, from llama.cpp
190, Anthropic's messages 140."""

WHOLE_BYTES: Final = 4
"""Bytes of an answer that is not streamed, likewise: English text."""

GENERATING: Final = frozenset({"chat_completions", "completions", "responses", "messages", "generate"})
"""The APIs whose answers are text. By the size of vectors nothing can be said."""


class OutputSizes:
    """Learns from answers that told their usage, and estimates the others."""

    def __init__(self) -> None:
        self._sizes = Corrections()

    def keep(self, pools: Iterable[str]) -> None:
        """Forget what was learned in other pools than ``pools``."""
        self._sizes.keep(pools)

    def settled(self, record: RequestRecord) -> RequestRecord:
        """Return ``record``, of a request that is over, with an estimate where its engine did not say all.

        A count that was told of an answer that then broke off may be of its beginning: the larger of the two holds.
        """
        told = record.usage.completion_tokens
        if not record.answered or not record.attempts or record.api not in GENERATING:
            return record
        if record.outcome is Outcome.OK and told is not None:
            self._learn(record, told)
            return record
        estimate = self._estimate(record)
        if told is not None and (record.final or told >= estimate):
            return record
        return record._replace(
            usage=record.usage._replace(completion_tokens=None),
            estimated_completion_tokens=estimate,
        )

    def _learn(self, record: RequestRecord, told: int) -> None:
        if record.stream:
            self._sizes.learn(record.pool, _form(record), record.response_bytes // STREAMED_BYTES, told)

    def _estimate(self, record: RequestRecord) -> int:
        read = record.read
        if read is not None and read.bytes:
            # What was read, and what was sent on after the reading had ended or before it was told again.
            more = 1.0 if read.over else max(1.0, record.response_bytes / read.bytes)
            return round(read.output_tokens * more)
        if not record.response_bytes:
            return 0
        if not record.stream:
            return max(1, record.response_bytes // WHOLE_BYTES)
        ratio = self._sizes.ratio(record.pool, _form(record)) or 1.0
        return max(1, round(record.response_bytes / STREAMED_BYTES * ratio))


def _form(record: RequestRecord) -> str:
    return f"{record.api} {record.model}"
