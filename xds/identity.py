"""Tokens: Envoy verifies them and leaves what they say in metadata, which says who asks.

A token that is not valid is let pass, and leaves nothing there: the decision then takes it for an API key, which it is
not, and refuses in the form of the API that was asked. So keys and tokens come in the same header.
"""

from typing import Final
from urllib.parse import urlsplit

from envoy_data_plane.envoy.config.cluster import v3 as cluster
from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.config.endpoint import v3 as endpoint
from envoy_data_plane.envoy.config.route import v3 as route
from envoy_data_plane.envoy.extensions.filters.http.jwt_authn import v3 as jwt_authn
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager import v3 as hcm
from envoy_data_plane.google.protobuf import Any, Empty

from tidegate.config import Config
from tidegate.config_identity import JWT_FILTER, PAYLOAD, Jwt
from xds import tls
from xds.messages import seconds, socket_address
from xds.names import JWKS_CLUSTER

PROVIDER: Final = "configured"
REMEMBERED_TOKENS: Final = 1000
"""Tokens whose verification each of Envoy's threads remembers: clients show theirs with every request."""

FETCH_SECONDS: Final = 5.0


def wanted(config: Config) -> Jwt | None:
    """Return what is said of tokens, where there is anybody whom they could stand for."""
    return config.authentication.jwt if config.tenants else None


def jwt_filter(jwt: Jwt) -> hcm.HttpFilter:
    """Return the filter."""
    provider = jwt_authn.JwtProvider(
        issuer=jwt.issuer,
        audiences=list(jwt.audiences),
        require_expiration=True,
        # It stays in the request: what is valid and says nobody's name must not count as nothing. No engine sees it.
        forward=True,
        from_headers=[jwt_authn.JwtHeader(name="authorization", value_prefix="Bearer ")],
        payload_in_metadata=PAYLOAD,
        jwt_cache_config=jwt_authn.JwtCacheConfig(jwt_cache_size=REMEMBERED_TOKENS),
    )
    if jwt.jwks_uri is None:
        provider.local_jwks = core.DataSource(inline_string=jwt.keys)
    else:
        uri = core.HttpUri(uri=jwt.jwks_uri, cluster=JWKS_CLUSTER, timeout=seconds(FETCH_SECONDS))
        # Fetched before the listener is there, and then beside the requests.
        provider.remote_jwks = jwt_authn.RemoteJwks(http_uri=uri, async_fetch=jwt_authn.JwksAsyncFetch())
    either = [
        jwt_authn.JwtRequirement(provider_name=PROVIDER),
        jwt_authn.JwtRequirement(allow_missing_or_failed=Empty()),
    ]
    everywhere = jwt_authn.RequirementRule(
        match=route.RouteMatch(prefix="/"),
        requires=jwt_authn.JwtRequirement(requires_any=jwt_authn.JwtRequirementOrList(requirements=either)),
    )
    config = jwt_authn.JwtAuthentication(providers={PROVIDER: provider}, rules=[everywhere])
    return hcm.HttpFilter(name=JWT_FILTER, typed_config=Any.pack(config))


def jwks_clusters(config: Config) -> list[cluster.Cluster]:
    """Return the cluster from which the issuer's keys are fetched, where they are."""
    jwt = wanted(config)
    if jwt is None or jwt.jwks_uri is None:
        return []
    uri = urlsplit(jwt.jwks_uri)
    secure, host = uri.scheme == "https", uri.hostname or ""
    place = endpoint.Endpoint(address=socket_address(host, uri.port or (443 if secure else 80)))
    members = endpoint.LocalityLbEndpoints(lb_endpoints=[endpoint.LbEndpoint(endpoint=place)])
    return [
        cluster.Cluster(
            name=JWKS_CLUSTER,
            type=cluster.ClusterDiscoveryType.STRICT_DNS,
            dns_lookup_family=cluster.ClusterDnsLookupFamily.V4_PREFERRED,
            connect_timeout=seconds(FETCH_SECONDS),
            load_assignment=endpoint.ClusterLoadAssignment(cluster_name=JWKS_CLUSTER, endpoints=[members]),
            transport_socket=tls.to_server(host, jwt.jwks_ca) if secure else None,
        )
    ]
