"""The gate of a process that decides: it knows who asks, and has what they may use counted where that is counted."""

from collections.abc import Callable, Mapping
from typing import Protocol

from extproc import ratelimit
from tidegate.config import Config
from tidegate.runtime.callers import Callers
from tidegate.scheduling.allowance import Answer, Ask
from tidegate.scheduling.caller import Caller
from tidegate.scheduling.request import InferenceRequest

ExpectedOutput = Callable[[InferenceRequest], int | None]
"""Returns how many tokens an answer will hardly exceed, ``None`` where nobody serves the request."""


class Till(Protocol):
    """Where it is counted what tenants use: in this process, or in the main one."""

    async def take(self, ask: Ask) -> Answer:
        """Take what is asked for from all limits, or from none.

        Bounded in time. What was taken when the caller is cancelled is given back by ``withdraw``.

        Raises:
            ApiError: 503, that could not be found out.
        """
        ...

    def withdraw(self, request_id: str) -> None:
        """Give back what was taken for a request that went nowhere, unless that was done. Never raises."""
        ...

    def unauthenticated(self, why: str) -> None:
        """Count a request of which it is not known whose it is. Never raises."""
        ...


class Gatekeeper:
    """Asks who comes, and takes what they ask for out of the till. It is a ``Gate``."""

    def __init__(self, till: Till, expected: ExpectedOutput) -> None:
        """Take from ``till`` what is ``expected``."""
        self._till = till
        self._expected = expected
        self._callers = Callers(till.unauthenticated)
        self.identify = self._callers.identify

    def configure(self, config: Config) -> None:
        """Take over the tenants and keys of ``config``."""
        self._callers.configure(config)

    async def admit(self, request: InferenceRequest, caller: Caller) -> Mapping[str, str]:
        """Take what ``request`` will probably cost; return what the client is told of its limits.

        Raises:
            ApiError: 429, a limit is in the way; 503, that could not be found out.
        """
        output = self._expected(request)
        if output is None:
            return {}  # nobody serves it, which it is told next
        if caller.reserves_limit and request.max_output_tokens is not None:
            output = request.max_output_tokens
        exceeded, standing = await self._till.take(Ask.of(request, caller, output))
        told = ratelimit.told(standing)
        if exceeded is not None:
            raise ratelimit.exceeded(exceeded, told)
        return {"tenant": caller.tenant, **told}

    def withdraw(self, request_id: str) -> None:
        """Give back what was taken for a request that went nowhere."""
        self._till.withdraw(request_id)
