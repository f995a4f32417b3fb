"""A request, as far as a decision needs to know it."""

from dataclasses import dataclass

from tidegate.scheduling.subset import Subset
from tidegate.tokens.count import TokenCount


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One request to decide on.

    Attributes:
        id: unique for all time; becomes the id of its reservation.
        api: the name of the API it came by, such as ``chat_completions``.
        model: the model's name as the client wrote it; empty when it named none.
        prompt: tokens to prefill, as counted.
        max_output_tokens: the most tokens the client will take; ``None`` when it set no limit.
        stream: whether the answer is streamed.
        pool: the pool that is to serve it, whatever its model; empty when the model says.
        among: it may go only to endpoints that are in all of these.
    """

    id: str
    api: str
    model: str
    prompt: TokenCount
    max_output_tokens: int | None = None
    stream: bool = False
    pool: str = ""
    among: tuple[Subset, ...] = ()
