"""How Envoy secures its connections to the control plane: its own certificate, and whom it takes for us."""

import json

from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.extensions.transport_sockets.tls import v3 as tls
from envoy_data_plane.envoy.type.matcher import v3 as matcher
from envoy_data_plane.google.protobuf import Any

from tidegate import addresses
from tidegate.config_control import Control

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


def _context(control: Control) -> tls.UpstreamTlsContext | None:
    if control.tls is None:
        return None
    files = control.tls.envoy
    server = files.server_name or control.reached_at
    by_ip = addresses.is_address(server)
    kind = tls.SubjectAltNameMatcherSanType.IP_ADDRESS if by_ip else tls.SubjectAltNameMatcherSanType.DNS
    return tls.UpstreamTlsContext(
        sni="" if by_ip else server,
        common_tls_context=tls.CommonTlsContext(
            tls_params=tls.TlsParameters(tls_minimum_protocol_version=tls.TlsParametersTlsProtocol.TLSv1_2),
            alpn_protocols=["h2"],
            tls_certificates=[
                tls.TlsCertificate(
                    certificate_chain=core.DataSource(filename=files.certificate),
                    private_key=core.DataSource(filename=files.key),
                )
            ],
            validation_context=tls.CertificateValidationContext(
                trusted_ca=core.DataSource(filename=files.ca),
                match_typed_subject_alt_names=[
                    tls.SubjectAltNameMatcher(san_type=kind, matcher=matcher.StringMatcher(exact=server))
                ],
            ),
        ),
    )
