"""The desk at which ext_proc asks: counting, deciding, and taking back what was not delivered."""

from collections.abc import Callable, Iterable

from extproc.desk import Catalogue
from extproc.intake import Intake
from extproc.transport import Outcome
from tidegate.fleet.events import FleetEvent, RequestEnded
from tidegate.runtime.correlation import Correlation
from tidegate.runtime.prompts import PromptCounter
from tidegate.scheduling.dispatch import Decision, Dispatcher, Refusal
from tidegate.scheduling.request import InferenceRequest
from tidegate.telemetry.metrics import Metrics
from tidegate.tokens.count import TokenCount
from tidegate.tokens.prompt import Prompt


class Desk:
    """Answers the questions of the request path, and counts what happens there."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        prompts: PromptCounter,
        metrics: Metrics,
        correlation: Correlation,
        apply: Callable[[FleetEvent], None],
        clock: Callable[[], float],
        intake: Intake,
        *,
        started_at: int,
    ) -> None:
        """Read with ``intake``, count with ``prompts``, decide with ``dispatcher``.

        Facts go to ``apply`` and figures to ``metrics``. ``started_at``, in Unix seconds, is since when models are said
        to be served.
        """
        self.intake = intake
        self._dispatcher = dispatcher
        self._prompts = prompts
        self._metrics = metrics
        self._apply = apply
        self._clock = clock
        self._correlation = correlation
        self._catalogue = Catalogue((), started_at)

    def serve(self, models: Iterable[str], unknown_paths: str) -> None:
        """Take over what the pools serve, where patterns cannot be listed, and who takes ``unknown_paths``, if any."""
        written_out = dict.fromkeys(model for model in models if "*" not in model)
        self._catalogue = Catalogue(tuple(written_out), self._catalogue.created, unknown_paths)

    def catalogue(self) -> Catalogue:
        """Return what is served now."""
        return self._catalogue

    def new_id(self, request_id: str) -> str:
        """Return an id that was never given before, by this process or an earlier one."""
        return self._correlation.new_id(request_id)

    async def count(self, model: str, prompt: Prompt) -> TokenCount:
        """Count the tokens of ``prompt`` as ``model`` would."""
        return await self._prompts.count(model, prompt)

    def wants_prefix(self, model: str, pool: str) -> bool:
        """Return whether the policy looks at what is cached of a prompt."""
        return self._dispatcher.wants_prefix(model, pool)

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
