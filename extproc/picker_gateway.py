"""What the endpoint picker's exchange asks of the rest of the program, besides a desk."""

from dataclasses import dataclass
from typing import Protocol

from extproc.answer import Answer
from extproc.usage import Usage
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.request import InferenceRequest


@dataclass(frozen=True, slots=True)
class Settings:
    """By what a request is taken.

    Attributes:
        max_body_bytes: the largest body, as it comes.
        decision_seconds: how long a decision may take, from the request's end on.
        obey_tests: whether the header by which conformance tests choose the endpoint is obeyed.
    """

    max_body_bytes: int = 33_554_432
    decision_seconds: float = 10.0
    obey_tests: bool = False


@dataclass(frozen=True, slots=True)
class Picked:
    """What became of a request that was sent on.

    Attributes:
        request: the request.
        decision: where it was sent.
        usage: how its answer tells what it cost.
        request_id: its ``x-request-id``; empty when it has none.
        status: the HTTP status of the answer; 0 when none was seen.
        served: ``ip:port`` of the endpoint that answered; empty where the gateway did not say.
        whole: the answer was seen to its end, as far as the gateway shows it.
        seconds: from the request's headers to the answer's end; ``None`` where that was not seen.
        first_token_seconds: from the request's headers to the answer's first token, or to the first byte of one that is
            not streamed; ``None`` when it was not seen.
        answer: what was read of it; ``None`` where the gateway does not show its body.
    """

    request: InferenceRequest
    decision: Decision
    usage: Usage
    request_id: str
    status: int
    served: str
    whole: bool
    seconds: float | None
    first_token_seconds: float | None
    answer: Answer | None


class Gateway(Protocol):
    """Keeps account of what was sent on, and of what is held."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        ...

    def hold(self, change: int) -> bool:
        """Take note that so many bytes of bodies more (less, if negative) are held; return whether they may be.

        Those that may not are to be given back as well.
        """
        ...

    def sent(self, reservation_id: str) -> None:
        """Take note that a decision was delivered: its stream's end, whatever it is, ends the request."""
        ...

    def served_by(self, decision: Decision, address: str) -> None:
        """Take note that another endpoint answers than the one that was picked."""
        ...

    def ended(self, picked: Picked) -> None:
        """Take note that a request that was ``sent`` is over. Called once for each; never raises."""
        ...
