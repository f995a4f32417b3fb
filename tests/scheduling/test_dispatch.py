"""The decision: which pool, which endpoints, reserved in the same breath."""

import random

import pytest

from tests.scheduling.ask import A, B, C, D, Draws, ask, configured, dispatcher
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import PoolsDeclared, RequestEnded, ScrapeFailed, TimePassed
from tidegate.fleet.health import RULES, UNREACHABLE_AFTER
from tidegate.fleet.ledger import Reservation
from tidegate.fleet.state import Fleet
from tidegate.scheduling.dispatch import Decision, Dispatcher, Refusal, RefusalReason
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.request import InferenceRequest

RNG = Draws([0.5])


def spec(name: str, *addresses: str, models: tuple[str, ...] = ("*",)) -> PoolSpec:
    return PoolSpec(name, "vllm", models, tuple(EndpointSpec(address) for address in addresses))


def decided(decides: Dispatcher, request: InferenceRequest, now: float = 0.0) -> Decision:
    decision = decides.decide(request, now)
    assert isinstance(decision, Decision)
    return decision


def test_a_decision_reserves_what_the_request_will_take() -> None:
    fleet, decides = dispatcher("round_robin", A, B, rng=RNG)
    decision = decided(decides, ask("q1", prompt=120, limit=40), 3.0)
    reserved = Reservation("q1", "default", A, 120, 40, 3.0, kind="m chat_completions")
    assert decision == Decision("default", "round_robin", (A, B), reserved)
    assert fleet.ledger.inflight(A).tokens == 160


def test_an_answer_without_a_limit_is_expected_to_be_as_long_as_answers_are() -> None:
    fleet, decides = dispatcher("round_robin", A, rng=RNG)
    for number in range(2000):
        decided(decides, ask(str(number)))
        fleet.apply(RequestEnded(str(number), output_tokens=30), 0.0)
    assert decided(decides, ask("next")).reservation.output_tokens == 30


def test_no_more_endpoints_are_named_than_the_policy_allows() -> None:
    _, decides = dispatcher("round_robin", A, B, C, D, rng=RNG, destinations=2)
    assert decided(decides, ask()).addresses == (A, B)


def test_the_models_pool_is_chosen() -> None:
    one, two = spec("one", A, models=("llama*",)), spec("two", B, models=("qwen",))
    _, decides = configured(one, two, rng=RNG, policy=Policy("random"))
    assert decided(decides, ask("q1", model="qwen")).addresses == (B,)
    assert decided(decides, ask("q2", model="llama-3")).pool == "one"


def test_an_unknown_model_is_refused_and_reserves_nothing() -> None:
    fleet, decides = configured(spec("one", A, models=("llama",)), rng=RNG, policy=Policy("random"))
    assert decides.decide(ask(model="gpt"), 0.0) == Refusal(RefusalReason.UNKNOWN_MODEL)
    assert len(fleet.ledger) == 0


def test_a_pool_without_endpoints_is_a_refusal_that_names_the_pool() -> None:
    fleet, decides = configured(spec("empty"), rng=RNG, policy=Policy("random"))
    assert decides.decide(ask(), 0.0) == Refusal(RefusalReason.NO_ENDPOINTS, "empty")
    assert len(fleet.ledger) == 0


def test_a_request_without_a_model_goes_to_the_only_pool() -> None:
    _, decides = configured(spec("default", A, models=("m",)), rng=RNG, policy=Policy("random"))
    assert decided(decides, ask(model="")).addresses == (A,)


def test_a_request_without_a_model_is_refused_where_there_are_several_pools() -> None:
    pools = (spec("default", A), spec("other", B, models=("n",)))
    _, decides = configured(*pools, rng=RNG, policy=Policy("random"))
    assert decides.decide(ask(model=""), 0.0) == Refusal(RefusalReason.UNKNOWN_MODEL)


def test_a_request_for_a_pool_goes_there_whatever_its_model() -> None:
    pools = (spec("default", A), spec("other", B, models=("n",)))
    _, decides = configured(*pools, rng=RNG, policy=Policy("random"))
    assert decided(decides, ask("q1", model="")._replace(pool="other")).addresses == (B,)
    assert decided(decides, ask("q2", model="m")._replace(pool="other")).addresses == (B,)
    assert decides.decide(ask("q3")._replace(pool="gone"), 0.0) == Refusal(RefusalReason.NO_ENDPOINTS)


def test_before_it_is_configured_every_model_is_unknown() -> None:
    assert Dispatcher(Fleet(45.0), RNG).decide(ask(), 0.0) == Refusal(RefusalReason.UNKNOWN_MODEL)


def test_a_doubtful_endpoint_beats_a_sure_refusal() -> None:
    fleet, decides = dispatcher("round_robin", A, B, rng=RNG)
    for address in (A, B):
        for _ in range(UNREACHABLE_AFTER):
            fleet.apply(ScrapeFailed(address, unreachable=True, reason="refused"), 0.0)
    assert decided(decides, ask()).addresses == (A, B)


def test_a_request_in_flight_cannot_be_decided_on_again() -> None:
    fleet, decides = dispatcher("round_robin", A, B, rng=RNG)
    decided(decides, ask("q1"))
    with pytest.raises(ValueError, match="q1 is in flight already"):
        decides.decide(ask("q1"), 1.0)
    assert len(fleet.ledger) == 1


def reconfigure(fleet: Fleet, decides: Dispatcher, policy: Policy, *pools: PoolSpec) -> None:
    declared = PoolsDeclared(pools)
    fleet.apply(declared, 0.0)
    decides.configure(declared, {pool.name: policy for pool in pools})


def test_a_picker_keeps_its_state_when_endpoints_come() -> None:
    fleet, decides = dispatcher("round_robin", A, B, rng=RNG)
    decided(decides, ask("q1"))
    reconfigure(fleet, decides, Policy("round_robin", 1), spec("default", A, B, C))
    fleet.apply(TimePassed(), RULES.warm_up_seconds)
    assert [decided(decides, ask(f"r{number}")).addresses for number in range(3)] == [(B,), (C,), (A,)]


def test_a_changed_policy_holds_from_the_next_request() -> None:
    fleet, decides = dispatcher("round_robin", A, B, rng=random.Random(1))
    decided(decides, ask("q1", prompt=50_000))
    reconfigure(fleet, decides, Policy("least_tokens"), spec("default", A, B))
    assert {decided(decides, ask(f"r{number}", prompt=1)).addresses[0] for number in range(5)} == {B}


def test_a_pool_that_comes_back_begins_anew() -> None:
    fleet, decides = dispatcher("round_robin", A, B, rng=RNG)
    decided(decides, ask("q1"))
    reconfigure(fleet, decides, Policy("round_robin"))
    assert decides.decide(ask("q2"), 0.0) == Refusal(RefusalReason.UNKNOWN_MODEL)
    reconfigure(fleet, decides, Policy("round_robin"), spec("default", A, B))
    assert decided(decides, ask("q3")).addresses[0] == A


@pytest.mark.parametrize("policies", [{}, {"default": Policy("best")}])
def test_a_bad_policy_is_refused_and_the_old_ones_go_on(policies: dict[str, Policy]) -> None:
    fleet, decides = dispatcher("round_robin", A, rng=RNG)
    with pytest.raises(KeyError):
        decides.configure(PoolsDeclared((spec("default", A, B),)), policies)
    assert decided(decides, ask()).addresses == (A,)
    assert len(fleet.ledger) == 1


def test_a_request_that_is_sent_to_a_pool_needs_its_adapter_there_whatever_other_pools_have() -> None:
    one = PoolSpec("one", "vllm", ("llama",), (EndpointSpec(A),), adapters=("lora-*",))
    two = PoolSpec("two", "vllm", (), (EndpointSpec(B),), adapters=("lora-x-*",))
    _, decides = configured(one, two, rng=RNG, policy=Policy("random"))
    for pool, model, adapter in (
        ("one", "lora-x-1", "lora-x-1"),
        ("two", "lora-x-1", "lora-x-1"),
        ("two", "llama", ""),
    ):
        explanation = decides.explain(ask(model=model)._replace(pool=pool, route="r"), 0.0)
        assert not isinstance(explanation, Refusal)
        request = explanation.case.request
        assert (request.pool, request.adapter, request.route) == (pool, adapter, "r")
