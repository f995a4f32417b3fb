"""How Envoy secures its connections: to the control plane, to others that tell it something, and from clients."""

import json

from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.extensions.transport_sockets.tls import v3 as tls
from envoy_data_plane.envoy.type.matcher import v3 as matcher
from envoy_data_plane.google.protobuf import Any

from tidegate import addresses
from tidegate.config_control import Control
from tidegate.config_tls import ListenerTls

NAME = "envoy.transport_sockets.tls"
TYPE_URL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"


def transport_socket(control: Control) -> core.TransportSocket | None:
    """Return the transport socket of a cluster that leads to the control plane; ``None`` without TLS."""
    context = _context(control)
    return None if context is None else core.TransportSocket(name=NAME, typed_config=Any.pack(context))


def bootstrap_transport_socket(control: Control) -> str:
    """Return the same as JSON, for a bootstrap; ``null`` without TLS."""
    context = _context(control)
    if context is None:
        return "null"
    return json.dumps({"name": NAME, "typed_config": {"@type": TYPE_URL, **context.to_dict()}})


def to_server(host: str, ca: str) -> core.TransportSocket:
    """Return the transport socket of a cluster that leads to ``host``, whose certificate one of ``ca`` has signed."""
    context = tls.UpstreamTlsContext(
        sni="" if addresses.is_address(host) else host,
        common_tls_context=tls.CommonTlsContext(tls_params=_parameters(), validation_context=_signed_for(host, ca)),
    )
    return core.TransportSocket(name=NAME, typed_config=Any.pack(context))


def from_clients(settings: ListenerTls) -> core.TransportSocket:
    """Return the transport socket of the listener."""
    trusted = None
    if settings.client_ca is not None:
        trusted = tls.CertificateValidationContext(trusted_ca=core.DataSource(filename=settings.client_ca))
    context = tls.DownstreamTlsContext(
        require_client_certificate=trusted is not None and settings.client_certificate == "required",
        common_tls_context=tls.CommonTlsContext(
            tls_params=_parameters(),
            alpn_protocols=["h2", "http/1.1"],
            tls_certificates=[_certificate(settings.certificate, settings.key)],
            validation_context=trusted,
        ),
    )
    return core.TransportSocket(name=NAME, typed_config=Any.pack(context))


def _context(control: Control) -> tls.UpstreamTlsContext | None:
    if control.tls is None:
        return None
    files = control.tls.envoy
    server = files.server_name or control.reached_at
    return tls.UpstreamTlsContext(
        sni="" if addresses.is_address(server) else server,
        common_tls_context=tls.CommonTlsContext(
            tls_params=_parameters(),
            alpn_protocols=["h2"],
            tls_certificates=[_certificate(files.certificate, files.key)],
            validation_context=_signed_for(server, files.ca),
        ),
    )


def _parameters() -> tls.TlsParameters:
    return tls.TlsParameters(tls_minimum_protocol_version=tls.TlsParametersTlsProtocol.TLSv1_2)


def _certificate(certificate: str, key: str) -> tls.TlsCertificate:
    return tls.TlsCertificate(
        certificate_chain=core.DataSource(filename=certificate), private_key=core.DataSource(filename=key)
    )


def _signed_for(server: str, ca: str) -> tls.CertificateValidationContext:
    """Return the demand for a certificate that bears the name or the address ``server``, signed by one of ``ca``."""
    kinds = tls.SubjectAltNameMatcherSanType
    kind = kinds.IP_ADDRESS if addresses.is_address(server) else kinds.DNS
    name = tls.SubjectAltNameMatcher(san_type=kind, matcher=matcher.StringMatcher(exact=server))
    return tls.CertificateValidationContext(
        trusted_ca=core.DataSource(filename=ca), match_typed_subject_alt_names=[name]
    )
