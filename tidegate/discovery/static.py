"""The source ``static``: the endpoints are those that the configuration file lists."""

from tidegate import config_readiness
from tidegate.config import Config
from tidegate.config_endpoint import Endpoint
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import PoolsDeclared
from tidegate.fleet.kv_bytes import expected
from tidegate.scheduling import pickers
from tidegate.scheduling.lanes import Lane
from tidegate.scheduling.policy import Policy


def declared(config: Config) -> PoolsDeclared:
    """Return the pools that ``config`` lists, in its order."""
    return PoolsDeclared(
        tuple(
            PoolSpec(
                name=pool.name,
                engine=pool.engine,
                models=pool.models,
                endpoints=tuple(specified(endpoint) for endpoint in pool.endpoints),
                adapters=pool.adapters,
                reckons=pickers.learns(pool.policy) or bool(pool.lanes) or pool.objective.ttft_seconds is not None,
                told=pool.kv_events is not None,
                vram="ignore" if config.agents is None else pool.vram.judged,
                health=config_readiness.rules((pool.health or config.health).rules, pool.readiness),
                kv_bytes_per_token=pool.vram.kv_bytes_per_token or expected(pool.models),
                breaker=pool.breaker.rules,
            )
            for pool in config.pools
        )
    )


def specified(endpoint: Endpoint) -> EndpointSpec:
    """Return ``endpoint`` as the fleet knows it."""
    return EndpointSpec(
        address=endpoint.address,
        weight=endpoint.weight,
        role=endpoint.role,
        models=endpoint.models,
        max_running=endpoint.max_running,
        gpu=endpoint.gpu or "",
        drain=endpoint.drain,
        node=endpoint.node or "",
        gpus=endpoint.gpus,
    )


def policies(config: Config) -> dict[str, Policy]:
    """Return how each pool's endpoints are chosen, by pool name."""
    return {
        pool.name: Policy(
            pool.policy,
            pool.destinations,
            pool.filters,
            tuple((scorer.name, scorer.weight) for scorer in pool.scorers),
            tuple(Lane(lane.above_tokens, lane.share or 0.0, lane.endpoints) for lane in pool.lanes),
        )
        for pool in config.pools
    }
