"""Routes as a process takes them over, the main one and a worker."""

from collections.abc import Iterator

import pytest

from tests.configurations import parsed
from tidegate.config import Config
from tidegate.config_values import CHECKED
from tidegate.discovery import static
from tidegate.fleet.events import RequestReserved
from tidegate.fleet.state import Fleet
from tidegate.runtime.correlation import Correlation
from tidegate.runtime.decider import Decider
from tidegate.runtime.workers.tally import Tally
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.routes import chosen
from tidegate.tokens.correction import Corrections
from tidegate.tokens.count import CountSource, TokenCount

ROUTED = parsed(
    {
        "pools": [
            {"name": "a", "models": ["llama", "qwen-*"], "endpoints": [{"address": "10.0.0.1:1"}]},
            {"name": "b", "models": [], "endpoints": [{"address": "10.0.0.2:1"}]},
        ],
        "routes": [
            {"model": "fast", "pool": "b"},
            {"model": "gpt-*", "min_prompt_tokens": 5, "pool": "b", "rewrite_model": "big"},
            {"model": "hidden", "headers": [{"name": "x-key", "present": True}], "pool": "b"},
            {"path": "/x/*", "api": "messages", "pool": "b"},
        ],
    }
)


class Notes:
    """A journal of reservations."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def reserved(self, event: RequestReserved) -> None:
        self.kept.append(event.reservation.address)

    def delivered(self, reservation_id: str) -> None:
        pass

    def abandoned(self, reservation_id: str) -> None:
        pass


@pytest.fixture(params=["the file", "the workers' channel"])
def decider(request: pytest.FixtureRequest) -> Iterator[Decider]:
    config = ROUTED
    if request.param != "the file":
        config = Config.model_validate_json(ROUTED.model_dump_json(), context=CHECKED)
        assert config == ROUTED
    fleet = Fleet(45.0)
    fleet.apply(static.declared(config), 0.0)
    made = Decider(fleet, Corrections(), Tally(), Correlation().new_id, Notes(), started_at=1)
    made.configure(config)
    yield made
    made.close()


def test_models_that_lead_anywhere_by_themselves_are_listed(decider: Decider) -> None:
    catalogue = decider.desk.catalogue()
    assert catalogue.models == ("llama", "fast")
    assert catalogue.serves("gpt-5")
    assert catalogue.serves("qwen-3")
    assert not catalogue.serves("hidden")


def test_a_request_is_reserved_in_the_pool_of_its_route(decider: Decider) -> None:
    routes = decider.desk.catalogue().routes
    assert routes is not None
    route = chosen(routes.possible("/v1/chat/completions", "chat_completions", {}, "gpt-5"), 5)
    assert route is not None
    prompt = TokenCount(5, CountSource.EXACT)
    asked = InferenceRequest("q", "chat_completions", route.rewrite_model, prompt, pool=route.pool, route=route.name)
    decision = decider.desk.decide(asked)
    assert isinstance(decision, Decision)
    assert (decision.pool, decision.addresses) == ("b", ("10.0.0.2:1",))


def test_without_routes_there_is_nothing_to_look_through(decider: Decider) -> None:
    decider.configure(Config.model_validate({**ROUTED.model_dump(), "pools": ROUTED.pools[:1], "routes": ()}))
    assert decider.desk.catalogue().routes is None
    assert decider.desk.catalogue().models == ("llama",)
