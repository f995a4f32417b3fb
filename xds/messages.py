"""Short forms for what nearly every Envoy message holds."""

from datetime import timedelta

import betterproto2
from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.google.protobuf import Any


def seconds(value: float) -> timedelta:
    """Return a duration of ``value`` seconds."""
    return timedelta(seconds=value)


def extension(name: str, config: betterproto2.Message) -> core.TypedExtensionConfig:
    """Return the extension ``name`` with its ``config``."""
    return core.TypedExtensionConfig(name=name, typed_config=Any.pack(config))


def socket_address(ip: str, port: int) -> core.Address:
    """Return a TCP address."""
    return core.Address(socket_address=core.SocketAddress(address=ip, port_value=port))


def ads() -> core.ConfigSource:
    """Return the source "the stream that this came by"."""
    return core.ConfigSource(ads=core.AggregatedConfigSource(), resource_api_version=core.ApiVersion.V3)


def grpc_service(cluster: str) -> core.GrpcService:
    """Return the gRPC service behind ``cluster``."""
    return core.GrpcService(envoy_grpc=core.GrpcServiceEnvoyGrpc(cluster_name=cluster))
