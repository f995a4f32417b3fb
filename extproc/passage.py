"""One request's way through the gate: who asks, and what is held for them until its decision is delivered."""

from collections.abc import Mapping

from extproc.desk import Gate
from extproc.errors import ApiError
from tidegate.scheduling.request import InferenceRequest


class Passage:
    """What the gate knows of one request.

    Attributes:
        caller: who asks.
        told: what they are to be told of their limits; ``None`` before the request was let in.
    """

    __slots__ = ("_gate", "_held", "caller", "told")

    def __init__(self, gate: Gate, headers: Mapping[str, str]) -> None:
        """Come to ``gate`` with a request of these ``headers``.

        Raises:
            ApiError: 401, they do not say who asks.
        """
        self._gate = gate
        self.caller = gate.identify(headers)
        self.told: Mapping[str, str] | None = None
        self._held: str | None = None

    async def enter(self, request: InferenceRequest) -> None:
        """Take what ``request`` will probably cost.

        Raises:
            ApiError: 429, a limit is in the way.
        """
        # Held before it is known: who is cancelled meanwhile may have taken something.
        self._held = request.id
        try:
            self.told = await self._gate.admit(request, self.caller)
        except ApiError:
            self._held = None
            raise

    def delivered(self) -> None:
        """Leave what is held to the access log and to the lease: the decision reached Envoy."""
        self._held = None

    def leave(self) -> None:
        """Give back what is held for a decision that did not."""
        if self._held is not None:
            held, self._held = self._held, None
            self._gate.withdraw(held)
