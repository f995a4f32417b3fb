"""Who is looked at for a request, and what the decision takes from it."""

import random
from dataclasses import replace

import pytest

from tests.scheduling.ask import A, B, C, D, Draws, ask, configured
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import LoadReported, PoolsDeclared, RequestEnded, ScrapeFailed
from tidegate.fleet.health import UNREACHABLE_AFTER
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet
from tidegate.scheduling.dispatch import Decision, Dispatcher, Refusal, RefusalReason
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.subset import Subset
from tidegate.tokens.count import CountSource, TokenCount

RNG = Draws([0.5])


def pool(*members: EndpointSpec, models: tuple[str, ...] = ("*",), adapters: tuple[str, ...] = ()) -> PoolSpec:
    return PoolSpec("default", "vllm", models, members, adapters)


def decided(decides: Dispatcher, *args: object, **more: object) -> Decision:
    decision = decides.decide(ask(*args, **more), 0.0)  # type: ignore[arg-type]
    assert isinstance(decision, Decision)
    return decision


def test_a_model_that_only_some_endpoints_serve_goes_to_those() -> None:
    members = (EndpointSpec(A, models=("small",)), EndpointSpec(B), EndpointSpec(C, models=("large", "small")))
    _, decides = configured(pool(*members), rng=RNG, policy=Policy("round_robin"))
    assert set(decided(decides, "1", model="large").addresses) == {B, C}
    assert set(decided(decides, "2", model="small").addresses) == {A, B, C}


def test_a_model_that_no_endpoint_serves_is_refused() -> None:
    _, decides = configured(pool(EndpointSpec(A, models=("small",))), rng=RNG, policy=Policy("random"))
    assert decides.decide(ask(model="large"), 0.0) == Refusal(RefusalReason.NO_ENDPOINTS, "default")


def test_whoever_only_prefills_is_never_named() -> None:
    members = (EndpointSpec(A, role="prefill"), EndpointSpec(B, role="decode"))
    _, decides = configured(pool(*members), rng=RNG, policy=Policy("round_robin"))
    assert decided(decides).addresses == (B,)


def test_a_full_batch_is_passed_by() -> None:
    members = (EndpointSpec(A, max_running=1), EndpointSpec(B, max_running=1))
    fleet, decides = configured(pool(*members), rng=RNG, policy=Policy("session"))
    first, second, third = (decided(decides, str(number), session="s").addresses for number in range(3))
    assert second == first[::-1]
    assert third == first
    fleet.apply(RequestEnded("0"), 0.0)
    fleet.apply(RequestEnded("2"), 0.0)
    assert decided(decides, "4", session="s").addresses[0] == first[0]


def test_whoever_is_full_is_still_named_for_retries_and_whoever_is_dead_is_not() -> None:
    members = (EndpointSpec(A), EndpointSpec(B), EndpointSpec(C), EndpointSpec(D, role="prefill"))
    fleet, decides = configured(pool(*members), rng=RNG, policy=Policy("round_robin"))
    full(fleet, A)
    full(fleet, B)
    for _ in range(UNREACHABLE_AFTER):
        fleet.apply(ScrapeFailed(B, unreachable=True, reason="refused"), 0.0)
    assert decided(decides).addresses == (C, A)


def full(fleet: Fleet, address: str) -> None:
    fleet.apply(LoadReported(address, EngineReport(waiting=9.0, kv_usage=1.0, kv_capacity_tokens=1000.0)), 0.0)


@pytest.mark.parametrize(("filters", "named"), [((), {A}), (("fits",), {B}), (("saturation",), {B})])
def test_a_policy_says_which_filters_it_wants(filters: tuple[str, ...], named: set[str]) -> None:
    policy = Policy("round_robin", 1, filters)
    fleet, decides = configured(pool(EndpointSpec(A), EndpointSpec(B)), rng=RNG, policy=policy)
    full(fleet, A)
    assert set(decided(decides).addresses) == named


def test_an_answer_takes_no_more_room_than_its_limit() -> None:
    fleet, decides = configured(pool(EndpointSpec(A), EndpointSpec(B)), rng=RNG, policy=Policy("session"))
    home = decided(decides, "0", session="s").addresses[0]
    fleet.apply(RequestEnded("0"), 0.0)
    fleet.apply(LoadReported(home, EngineReport(kv_usage=0.0, kv_capacity_tokens=150.0)), 0.0)
    assert decided(decides, "1", prompt=100, session="s", limit=1000).addresses[0] != home
    assert decided(decides, "2", prompt=100, session="s", limit=40).addresses[0] == home


def test_where_a_prompt_was_sent_it_is_cached() -> None:
    fleet, decides = configured(pool(EndpointSpec(A), EndpointSpec(B)), rng=random.Random(1), policy=Policy("random"))
    first = decided(decides, "0", prompt=40, prefix=(1, 2))
    assert first.reservation.uncached_tokens == 40
    assert fleet.cached("default", (1, 2, 3)).blocks(first.addresses[0]) == 2


def test_without_a_prefix_nothing_is_known_of_the_cache() -> None:
    _, decides = configured(pool(EndpointSpec(A)), rng=RNG, policy=Policy("random"))
    assert decided(decides).reservation.uncached_tokens is None


def test_what_is_cached_is_never_more_than_the_prompt() -> None:
    _, decides = configured(pool(EndpointSpec(A)), rng=RNG, policy=Policy("random"))
    decided(decides, "0", prompt=40, prefix=(1, 2, 3))
    assert decided(decides, "1", prompt=40, prefix=(1, 2, 3)).reservation.uncached_tokens == 0


def test_changed_weights_make_a_new_picker_and_changed_filters_do_not() -> None:
    spec = pool(EndpointSpec(A), EndpointSpec(B))
    fleet, decides = configured(spec, rng=RNG, policy=Policy("weighted_scores"))
    declared = PoolsDeclared((spec,))
    before = decides._pickers["default"]
    policy = Policy("weighted_scores", filters=("fits",))
    decides.configure(declared, {"default": policy})
    assert decides._pickers["default"] is before
    decides.configure(declared, {"default": replace(policy, weights=(("running", 1.0),))})
    assert decides._pickers["default"] is not before
    fleet.apply(LoadReported(A, EngineReport(running=5.0)), 0.0)
    fleet.apply(LoadReported(B, EngineReport(running=1.0)), 0.0)
    assert decided(decides).addresses[0] == B


@pytest.mark.parametrize("policy", [Policy("random", filters=("best",)), Policy("nobody")])
def test_an_unknown_filter_or_picker_is_refused(policy: Policy) -> None:
    spec = pool(EndpointSpec(A))
    _, decides = configured(spec, rng=RNG, policy=Policy("random"))
    with pytest.raises(KeyError):
        decides.configure(PoolsDeclared((spec,)), {"default": policy})
    assert decided(decides).policy == "random"


def test_a_placed_request_is_the_same_but_for_what_was_found_out() -> None:
    among = (Subset.of(["10.0.0.1:80"]),)
    whole = InferenceRequest(
        *(
            "q",
            "chat_completions",
            "m",
            TokenCount(5, CountSource.EXACT),
            7,
            True,
            "a",
            (1, 2),
            16,
            "s",
            "l",
            9,
            among,
            "r",
            3,
        )
    )
    assert len(whole) == 15, "another field must be handed on as well"
    assert whole.placed("b", "k", 8) == whole._replace(pool="b", adapter="k", output_tokens=8)
