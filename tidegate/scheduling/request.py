"""A request, as far as a decision needs to know it."""

from dataclasses import dataclass

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
        prefix: for each full block of the prompt, from its start, a hash of everything up to the block's end (64 bits).
        block_tokens: tokens that a block of ``prefix`` stands for.
        session: what the requests of one session have in common; empty outside of one.
        adapter: the adapter (LoRA) that it wants; empty for the model itself.
        output_tokens: tokens that the answer will probably have; the dispatcher fills it in from what the pool learned.
        longest_output_tokens: tokens that it will hardly exceed, likewise.
    """

    id: str
    api: str
    model: str
    prompt: TokenCount
    max_output_tokens: int | None = None
    stream: bool = False
    pool: str = ""
    prefix: tuple[int, ...] = ()
    block_tokens: int = 0
    session: str = ""
    adapter: str = ""
    output_tokens: int = 0
    longest_output_tokens: int = 0

    @property
    def kind(self) -> str:
        """What requests with answers of about the same length share."""
        return f"{self.model} {self.api}"
