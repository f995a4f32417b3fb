"""The desk at which ext_proc asks: counting, deciding, and taking back what was not delivered."""

from collections.abc import Callable, Sequence

from extproc.transport import Outcome
from tidegate.fleet.events import FleetEvent, RequestEnded
from tidegate.runtime.correlation import Correlation
from tidegate.scheduling.dispatch import Decision, Dispatcher, Refusal
from tidegate.scheduling.request import InferenceRequest
from tidegate.telemetry.metrics import Metrics
from tidegate.tokens.count import TokenCount
from tidegate.tokens.counter import TokenCounter


class Desk:
    """Answers the questions of the request path, and counts what happens there."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        counter: TokenCounter,
        metrics: Metrics,
        correlation: Correlation,
        apply: Callable[[FleetEvent], None],
        clock: Callable[[], float],
    ) -> None:
        """Decide with ``dispatcher``, count with ``counter``; hand facts to ``apply`` and figures to ``metrics``."""
        self._dispatcher = dispatcher
        self._counter = counter
        self._metrics = metrics
        self._apply = apply
        self._clock = clock
        self._correlation = correlation

    def new_id(self, request_id: str) -> str:
        """Return an id that was never given before, by this process or an earlier one."""
        return self._correlation.new_id(request_id)

    async def count(self, model: str, texts: Sequence[str]) -> TokenCount:
        """Count the tokens of ``texts`` as ``model`` would."""
        began = self._clock()
        count = await self._counter.count(model, texts)
        self._metrics.tokens_counted(count.source.value, self._clock() - began)
        return count

    def decide(self, request: InferenceRequest) -> Decision | Refusal:
        """Decide on ``request`` and reserve."""
        began = self._clock()
        decision = self._dispatcher.decide(request, began)
        self._metrics.received(decision.pool)
        if isinstance(decision, Decision):
            self._correlation.remember(request.id)
            self._metrics.picked(decision.pool, decision.addresses[0], decision.policy)
        self._metrics.decided(self._clock() - began)
        return decision

    def abandon(self, reservation_id: str) -> None:
        """Release what was reserved for a decision that Envoy never got."""
        self._apply(RequestEnded(reservation_id))

    def refused(self, api: str, model: str, pool: str, status: int, reason: str) -> None:  # noqa: ARG002
        """Count a refusal."""
        self._metrics.refused(api, reason)

    def stream_started(self) -> None:
        """Count an exchange as open."""
        self._metrics.ext_proc_opened()

    def stream_ended(self, outcome: Outcome) -> None:
        """Count it as ended."""
        self._metrics.ext_proc_closed(outcome.value)
