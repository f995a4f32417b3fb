"""Everything Envoy is told that follows from the configuration alone: built and serialized once for each."""

from functools import lru_cache

from tidegate.config import Config
from xds.clusters import pool_cluster, undecided_cluster
from xds.control_clusters import access_log_cluster, ext_proc_cluster
from xds.identity import jwks_clusters
from xds.listener import client_listener
from xds.names import ACCESS_LOG_CLUSTER, EXT_PROC_CLUSTER, LISTENER, ROUTES, UNDECIDED_CLUSTER
from xds.routes import route_configuration
from xds.snapshot import Reference, Resource
from xds.type_urls import CLUSTER, ENDPOINT, ROUTE
from xds.type_urls import LISTENER as LISTENER_TYPE


@lru_cache(maxsize=4)
def resources(config: Config) -> tuple[Resource, ...]:
    """Return the clusters, the listener and the routes of ``config``; the same objects for an equal configuration.

    Building takes about half a second the first time (envoy-data-plane is not made for speed), and nothing after that:
    the assignments, which change often, are built elsewhere (``endpoints``).
    """
    clusters = [
        undecided_cluster(),
        ext_proc_cluster(config.control),
        access_log_cluster(config.control),
        *jwks_clusters(config),
    ]
    pools = [
        pool_cluster(pool, pool.idle_timeout_seconds or config.limits.idle_timeout_seconds) for pool in config.pools
    ]
    return (
        *(Resource(CLUSTER, built.name, bytes(built)) for built in clusters),
        *(Resource(CLUSTER, built.name, bytes(built), frozenset({Reference(ENDPOINT, built.name)})) for built in pools),
        Resource(LISTENER_TYPE, LISTENER, bytes(client_listener(config)), _listener_references(config)),
        Resource(
            ROUTE,
            ROUTES,
            bytes(route_configuration(config)),
            frozenset(Reference(CLUSTER, name) for name in (UNDECIDED_CLUSTER, *(pool.name for pool in pools))),
        ),
    )


def _listener_references(config: Config) -> frozenset[Reference]:
    named = (EXT_PROC_CLUSTER, ACCESS_LOG_CLUSTER, *(built.name for built in jwks_clusters(config)))
    return frozenset({Reference(ROUTE, ROUTES), *(Reference(CLUSTER, name) for name in named)})
