"""What a request that is over teaches about counting tokens."""

from typing import NamedTuple

from tidegate.telemetry.outcome import Outcome
from tidegate.telemetry.record import RequestRecord

CACHED_INCLUDED = frozenset({"chat_completions", "completions", "embeddings", "responses"})
"""APIs whose usage has cached tokens among the prompt's; Anthropic's has them beside."""


class Lesson(NamedTuple):
    """An engine counted ``reported`` tokens in a prompt where we had ``counted``, before any correction."""

    pool: str
    model: str
    counted: int
    reported: int


def lesson(record: RequestRecord) -> Lesson | None:
    """Return what ``record`` teaches; ``None`` unless its engine reported usage and we had counted the same thing.

    An answer that was broken off may be one whose usage was not complete either.
    """
    usage = record.usage
    if (
        record.outcome is Outcome.OK
        and usage.prompt_tokens is not None
        and record.uncorrected_prompt_tokens is not None
        and (not usage.cached_tokens or record.api in CACHED_INCLUDED)
    ):
        return Lesson(record.pool, record.model, record.uncorrected_prompt_tokens, usage.prompt_tokens)
    return None
