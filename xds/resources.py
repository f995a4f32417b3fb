"""Everything Envoy is told that follows from the configuration alone: built and serialized once for each."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from tidegate.config import Config, Pool
from tidegate.config_envoys import DEFAULT
from xds import secrets
from xds.clusters import pool_cluster, undecided_cluster
from xds.control_clusters import access_log_cluster, ext_proc_cluster, hold_cluster
from xds.identity import jwks_clusters
from xds.listener import client_listener
from xds.names import ACCESS_LOG_CLUSTER, EXT_PROC_CLUSTER, LISTENER, ROUTES, UNDECIDED_CLUSTER
from xds.route_table import encoded
from xds.snapshot import Reference, Resource
from xds.type_urls import CLUSTER, ENDPOINT, ROUTE, SECRET
from xds.type_urls import LISTENER as LISTENER_TYPE


class Told(NamedTuple):
    """What a group of Envoys is told.

    Attributes:
        resources: all but its assignments and secrets.
        pools: those that it knows, and whose assignments it is told.
        secrets: the names of its secrets.
    """

    resources: tuple[Resource, ...]
    pools: frozenset[str]
    secrets: frozenset[str]


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
    made: dict[str, bytes] = {}
    routes = {known: _routes(config, everything - known, made) for known in {known for _, known in wanted.values()}}
    built = {}
    for listener, known in {*wanted.values()}:
        clusters = (one for one in shared if one.name in known or one.name not in everything)
        resources = (*clusters, listeners[listener], routes[known])
        built[listener, known] = Told(resources, known, _secrets(resources))
    return {name: built[which] for name, which in wanted.items()}


def _clusters(config: Config) -> list[Resource]:
    control = (ext_proc_cluster(config.control), access_log_cluster(config.control), hold_cluster(config.control))
    shown = () if config.control.tls is None else (secrets.ENVOY_CERTIFICATE, secrets.ENVOY_CA)
    pools = [
        (pool, pool_cluster(pool, pool.idle_timeout_seconds or config.limits.idle_timeout_seconds))
        for pool in config.pools
    ]
    return [
        *(Resource(CLUSTER, built.name, bytes(built)) for built in (undecided_cluster(), *jwks_clusters(config))),
        *(Resource(CLUSTER, built.name, bytes(built), secrets.references(*shown)) for built in control),
        *(Resource(CLUSTER, pool.name, bytes(built), _pool_references(pool)) for pool, built in pools),
    ]


def _listener(config: Config) -> Resource:
    named = (EXT_PROC_CLUSTER, ACCESS_LOG_CLUSTER, *(built.name for built in jwks_clusters(config)))
    references = frozenset({Reference(ROUTE, ROUTES), *(Reference(CLUSTER, name) for name in named)})
    references |= secrets.references(*secrets.of_listener(config.listener.tls))
    return Resource(LISTENER_TYPE, LISTENER, bytes(client_listener(config)), references)


def _routes(config: Config, elsewhere: frozenset[str], made: dict[str, bytes]) -> Resource:
    pools = (pool.name for pool in config.pools if pool.name not in elsewhere)
    references = frozenset(Reference(CLUSTER, name) for name in (UNDECIDED_CLUSTER, *pools))
    return Resource(ROUTE, ROUTES, encoded(config, elsewhere, made), references)


def _pool_references(pool: Pool) -> frozenset[Reference]:
    named = frozenset({Reference(ENDPOINT, pool.name)})
    if pool.tls is None:
        return named
    shown = () if pool.tls.certificate is None else (secrets.pool_certificate(pool.name),)
    return named | secrets.references(secrets.pool_ca(pool.name), *shown)


def _secrets(resources: Iterable[Resource]) -> frozenset[str]:
    return frozenset(name for one in resources for type_url, name in one.references if type_url == SECRET)
