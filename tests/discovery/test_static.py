"""The source ``static``: what the file lists is what the fleet knows and the dispatcher obeys."""

import random
from dataclasses import replace

import yaml

from tests.configurations import EVERY_KEY, EXAMPLE, changed, parsed
from tidegate.config import parse
from tidegate.discovery.static import declared, policies
from tidegate.fleet.breaker import BreakerRules
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import MembershipChanged, PoolsDeclared
from tidegate.fleet.health import HealthRules
from tidegate.fleet.state import Fleet
from tidegate.scheduling import pickers
from tidegate.scheduling.dispatch import Decision, Dispatcher
from tidegate.scheduling.lanes import Lane
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.request import InferenceRequest
from tidegate.tokens.count import CountSource, TokenCount

HEALTH = HealthRules(2.0, 60.0, 1.0, 30.0, 10.0, 0.2, 0.4, 0.3, 0.2, 0.6)


def test_the_pools_are_declared_as_the_file_lists_them() -> None:
    assert declared(parsed(EVERY_KEY)) == PoolsDeclared(
        (
            PoolSpec(
                "llama",
                "sglang",
                ("llama-*", "meta/*"),
                (
                    EndpointSpec(
                        *("[fd00::1]:8000", 10, "decode", ("llama-3",), 256, "h100"),
                        node="gpu-7.internal",
                        gpus=("GPU-5a1c", "MIG-77"),
                        drain=True,
                    ),
                ),
                ("sql-*",),
                reckons=True,  # it has lanes
                told=True,
                vram="headroom",
                kv_bytes_per_token=70_272,
                health=replace(HEALTH, ready_by="metrics", ready_seconds=20.0),
            ),
            PoolSpec(
                "rest",
                "none",
                ("*",),
                (EndpointSpec("10.0.0.3:1", 1),),
                reckons=True,
                breaker=BreakerRules(),
                vram="auto",
                health=replace(HEALTH, ready_by="any"),
            ),
        )
    )


def test_vram_bounds_nothing_where_nobody_listens_for_agents() -> None:
    pools = declared(parsed({**EVERY_KEY, "agents": None})).pools
    assert {pool.vram for pool in pools} == {"ignore"}


def test_each_pool_has_its_policy() -> None:
    weights = (("queue", 0.5), ("running", 1.0))
    assert policies(parsed(EVERY_KEY)) == {
        "llama": Policy("weighted_scores", 2, ("reachable", "saturation"), weights, (Lane(30_000, 0.25),)),
        "rest": Policy("predicted_latency", 3),
    }


def test_reading_the_same_file_again_changes_nothing() -> None:
    fleet = Fleet(45.0)
    fleet.apply(declared(parse(EXAMPLE, "x")), 0.0)
    assert fleet.apply(declared(parse(EXAMPLE, "x")), 1.0) == []


def test_an_endpoint_written_in_another_spelling_is_the_same_one() -> None:
    fleet = Fleet(45.0)
    fleet.apply(declared(parsed(EVERY_KEY)), 0.0)
    spelled = yaml.safe_dump(EVERY_KEY).replace("[fd00::1]:8000", "[FD00::0:1]:8000").encode()
    assert fleet.apply(declared(parse(spelled, "x")), 1.0) == []


def test_an_endpoint_added_to_the_file_is_added_to_the_fleet() -> None:
    fleet = Fleet(45.0)
    fleet.apply(declared(parse(EXAMPLE, "x")), 0.0)
    longer = EXAMPLE + b'      - {address: "127.0.0.1:8003"}\n'
    assert fleet.apply(declared(parse(longer, "x")), 1.0)[0] == MembershipChanged(("127.0.0.1:8003",), ())


def test_every_policy_of_a_file_decides() -> None:
    for name in pickers.names():
        config = parse(EXAMPLE.replace(b"policy: least_tokens", f"policy: {name}".encode()), "x")
        fleet = Fleet(config.limits.lease_seconds, config.scrape.stale_after_seconds)
        fleet.apply(declared(config), 0.0)
        decides = Dispatcher(fleet, random.Random(1))
        decides.configure(declared(config), policies(config))
        request = InferenceRequest("q", "chat_completions", "any", TokenCount(5, CountSource.EXACT))
        decision = decides.decide(request, 0.0)
        assert isinstance(decision, Decision)
        assert set(decision.addresses) == {"127.0.0.1:8001", "127.0.0.1:8002"}


def test_speeds_are_learned_where_the_policy_reads_them() -> None:
    for name in pickers.names():
        (pool, *_) = declared(parsed(changed("pools.1.policy", name))).pools[1:]
        assert pool.reckons == (name == "predicted_latency")
