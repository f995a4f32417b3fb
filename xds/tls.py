"""How Envoy secures its connections: to the control plane, to engines and others, and from clients.

What it shows and whom it trusts are secrets, which are named here and come by themselves.
"""

import json
from collections.abc import Iterable, Sequence

from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.extensions.transport_sockets.tls import v3 as tls
from envoy_data_plane.envoy.type.matcher import v3 as matcher
from envoy_data_plane.google.protobuf import Any

from tidegate import addresses
from tidegate.config_control import Control
from tidegate.config_tls import ListenerTls, PoolTls
from xds import secrets
from xds.messages import ads, seconds

NAME = "envoy.transport_sockets.tls"
FETCH_SECONDS = 5.0
"""How long a cluster or a listener that is new to Envoy waits for its secrets, and an Envoy's start with it. Then it
goes on without, which means that it makes no connection until they come."""

TYPE_URL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"


def transport_socket(control: Control) -> core.TransportSocket | None:
    """Return the transport socket of a cluster that leads to the control plane; ``None`` without TLS."""
    if control.tls is None:
        return None
    server = control.tls.envoy.server_name or control.reached_at
    context = tls.UpstreamTlsContext(
        sni="" if addresses.is_address(server) else server,
        common_tls_context=tls.CommonTlsContext(
            tls_params=_parameters(),
            alpn_protocols=["h2"],
            tls_certificate_sds_secret_configs=[_secret(secrets.ENVOY_CERTIFICATE)],
            combined_validation_context=_signed_for([server], secrets.ENVOY_CA),
        ),
    )
    return core.TransportSocket(name=NAME, typed_config=Any.pack(context))


def bootstrap_transport_socket(control: Control, secrets_folder: str | None = None) -> str:
    """Return the same as JSON, for a bootstrap; ``null`` without TLS.

    Its secrets are those in ``secrets_folder`` (see ``bootstrap.secret_files``), which Envoy follows when they are
    renewed, or else the files themselves, which it reads once.
    """
    if control.tls is None:
        return "null"
    files = control.tls.envoy
    server = files.server_name or control.reached_at
    common = tls.CommonTlsContext(tls_params=_parameters(), alpn_protocols=["h2"])
    if secrets_folder is None:
        common.tls_certificates = [
            tls.TlsCertificate(
                certificate_chain=core.DataSource(filename=files.certificate),
                private_key=core.DataSource(filename=files.key),
            )
        ]
        common.validation_context = _bearing([server])
        common.validation_context.trusted_ca = core.DataSource(filename=files.ca)
    else:
        common.tls_certificate_sds_secret_configs = [_on_file(secrets.ENVOY_CERTIFICATE, secrets_folder)]
        common.combined_validation_context = _signed_for([server], secrets.ENVOY_CA, secrets_folder)
    context = tls.UpstreamTlsContext(sni="" if addresses.is_address(server) else server, common_tls_context=common)
    return json.dumps({"name": NAME, "typed_config": {"@type": TYPE_URL, **context.to_dict()}})


def to_server(host: str, ca: str) -> core.TransportSocket:
    """Return the transport socket of a cluster that leads to ``host``, whose certificate one of ``ca`` has signed."""
    trusted = _bearing([host])
    trusted.trusted_ca = core.DataSource(filename=ca)
    context = tls.UpstreamTlsContext(
        sni="" if addresses.is_address(host) else host,
        common_tls_context=tls.CommonTlsContext(tls_params=_parameters(), validation_context=trusted),
    )
    return core.TransportSocket(name=NAME, typed_config=Any.pack(context))


def to_engines(pool: str, settings: PoolTls, alpn: Sequence[str] = ("http/1.1",)) -> core.TransportSocket:
    """Return the transport socket of the cluster ``pool``."""
    name = settings.server_name
    common = tls.CommonTlsContext(
        tls_params=_parameters(),
        alpn_protocols=list(alpn),
        combined_validation_context=_signed_for(settings.accepted, secrets.pool_ca(pool)),
    )
    if settings.certificate is not None:
        common.tls_certificate_sds_secret_configs = [_secret(secrets.pool_certificate(pool))]
    context = tls.UpstreamTlsContext(
        sni=name if name is not None and not addresses.is_address(name) else "", common_tls_context=common
    )
    return core.TransportSocket(name=NAME, typed_config=Any.pack(context))


def from_clients(settings: ListenerTls) -> core.TransportSocket:
    """Return the transport socket of the listener."""
    asks = settings.client_ca is not None
    context = tls.DownstreamTlsContext(
        require_client_certificate=asks and settings.client_certificate == "required",
        common_tls_context=tls.CommonTlsContext(
            tls_params=_parameters(),
            alpn_protocols=["h2", "http/1.1"],
            tls_certificate_sds_secret_configs=[_secret(secrets.listener_certificate(settings))],
            validation_context_sds_secret_config=_secret(secrets.listener_client_ca(settings)) if asks else None,
        ),
    )
    return core.TransportSocket(name=NAME, typed_config=Any.pack(context))


def _parameters() -> tls.TlsParameters:
    return tls.TlsParameters(tls_minimum_protocol_version=tls.TlsParametersTlsProtocol.TLSv1_2)


def _secret(name: str) -> tls.SdsSecretConfig:
    source = ads()
    source.initial_fetch_timeout = seconds(FETCH_SECONDS)
    return tls.SdsSecretConfig(name=name, sds_config=source)


def _on_file(name: str, folder: str) -> tls.SdsSecretConfig:
    path = core.PathConfigSource(path=f"{folder}/{name}.json")
    source = core.ConfigSource(path_config_source=path, resource_api_version=core.ApiVersion.V3)
    return tls.SdsSecretConfig(name=name, sds_config=source)


def _signed_for(
    names: Iterable[str], secret: str, folder: str | None = None
) -> tls.CommonTlsContextCombinedCertificateValidationContext:
    """Return the demand for a certificate that bears one of ``names``, signed by one of those in ``secret``."""
    return tls.CommonTlsContextCombinedCertificateValidationContext(
        default_validation_context=_bearing(names),
        validation_context_sds_secret_config=_secret(secret) if folder is None else _on_file(secret, folder),
    )


def _bearing(names: Iterable[str]) -> tls.CertificateValidationContext:
    """Return the demand for a certificate that bears one of ``names``: DNS names, addresses, URIs."""
    return tls.CertificateValidationContext(
        match_typed_subject_alt_names=[
            tls.SubjectAltNameMatcher(san_type=_kind(name), matcher=matcher.StringMatcher(exact=name)) for name in names
        ]
    )


def _kind(name: str) -> tls.SubjectAltNameMatcherSanType:
    kinds = tls.SubjectAltNameMatcherSanType
    if addresses.is_address(name):
        return kinds.IP_ADDRESS
    return kinds.URI if "://" in name else kinds.DNS
