"""Everything Envoy is told that follows from the configuration alone: built and serialized once for each."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from tidegate.config import Config
from tidegate.config_envoys import DEFAULT
from xds.clusters import pool_cluster, undecided_cluster
from xds.control_clusters import access_log_cluster, ext_proc_cluster
from xds.identity import jwks_clusters
from xds.listener import client_listener
from xds.names import ACCESS_LOG_CLUSTER, EXT_PROC_CLUSTER, LISTENER, ROUTES, UNDECIDED_CLUSTER
from xds.routes import route_configuration
from xds.snapshot import Reference, Resource
from xds.type_urls import CLUSTER, ENDPOINT, ROUTE
from xds.type_urls import LISTENER as LISTENER_TYPE


class Told(NamedTuple):
    """What a group of Envoys is told, but for its assignments: those of the pools that it knows."""

    resources: tuple[Resource, ...]
    pools: frozenset[str]


def default(config: Config) -> Told:
    """Return what Envoys in no group are told."""
    return _told(config)[DEFAULT]


def resources(config: Config) -> tuple[Resource, ...]:
    """Return the clusters, the listener and the routes that Envoys in no group are told."""
    return default(config).resources


def by_group(config: Config) -> Mapping[str, Told]:
    """Return what each group is told; the same objects for an equal configuration."""
    told = _told(config)
    return told if config.envoys.others == DEFAULT else {name: one for name, one in told.items() if name != DEFAULT}


@lru_cache(maxsize=4)
def _told(config: Config) -> Mapping[str, Told]:
    """Return the clusters, the listener and the routes for each group of ``config``, the default one among them.

    Building takes about half a second the first time (envoy-data-plane is not made for speed), and nothing after that:
    the assignments, which change often, are built elsewhere (``endpoints``). What groups have in common is built once.
    """
    everything = frozenset(pool.name for pool in config.pools)
    wanted = {DEFAULT: (config.listener, everything)}
    for group in config.envoys.groups:
        wanted[group.name] = (group.listener or config.listener, frozenset(group.pools) & everything or everything)
    shared = _clusters(config)
    listeners = {
        one: _listener(config.model_copy(update={"listener": one})) for one in {one for one, _ in wanted.values()}
    }
    routes = {known: _routes(config, everything - known) for known in {known for _, known in wanted.values()}}
    built = {}
    for listener, known in {*wanted.values()}:
        clusters = (one for one in shared if one.name in known or one.name not in everything)
        built[listener, known] = Told((*clusters, listeners[listener], routes[known]), known)
    return {name: built[which] for name, which in wanted.items()}


def _clusters(config: Config) -> list[Resource]:
    clusters = [
        undecided_cluster(),
        ext_proc_cluster(config.control),
        access_log_cluster(config.control),
        *jwks_clusters(config),
    ]
    pools = [
        pool_cluster(pool, pool.idle_timeout_seconds or config.limits.idle_timeout_seconds) for pool in config.pools
    ]
    return [
        *(Resource(CLUSTER, built.name, bytes(built)) for built in clusters),
        *(Resource(CLUSTER, built.name, bytes(built), frozenset({Reference(ENDPOINT, built.name)})) for built in pools),
    ]


def _listener(config: Config) -> Resource:
    named = (EXT_PROC_CLUSTER, ACCESS_LOG_CLUSTER, *(built.name for built in jwks_clusters(config)))
    references = frozenset({Reference(ROUTE, ROUTES), *(Reference(CLUSTER, name) for name in named)})
    return Resource(LISTENER_TYPE, LISTENER, bytes(client_listener(config)), references)


def _routes(config: Config, elsewhere: frozenset[str]) -> Resource:
    pools = (pool.name for pool in config.pools if pool.name not in elsewhere)
    references = frozenset(Reference(CLUSTER, name) for name in (UNDECIDED_CLUSTER, *pools))
    return Resource(ROUTE, ROUTES, bytes(route_configuration(config, elsewhere)), references)
