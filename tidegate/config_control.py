"""The configuration's section ``control``: where Envoy reaches the control plane."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from tidegate import addresses
from tidegate.config_tls import Tls
from tidegate.config_values import AbsolutePath, Ip, Port, Section


class Control(Section):
    """Where Envoy reaches the control plane, over gRPC."""

    address: Ip = Field(
        "127.0.0.1", description="IP address to bind, and the one Envoy connects to unless `advertise` is set."
    )
    advertise: Ip | None = Field(
        None, description="IP address that Envoy connects to, where it differs from `address`."
    )
    xds_port: Port = Field(
        18000, description="Port of the discovery service, and of the access log over `grpc` or with several workers."
    )
    ext_proc_port: Port = Field(
        18001,
        description="Port of the external-processing service, or of the first worker; and of the access log over `h2`.",
    )
    ext_proc_transport: Literal["grpc", "h2"] = Field(
        "h2",
        description="What serves decisions and takes in the access log: `h2`, which is HTTP/2 on asyncio, or `grpc`, "
        "which is grpc.aio and takes more CPU time. Envoy sees no difference.",
    )

    ext_proc_exchanges: Literal[1, 2] = Field(
        1,
        description="In how many exchanges Envoy asks about a request with a body: in 1, the body with what is read of "
        "the headers, which costs less; in 2, the headers first.",
    )

    workers: int = Field(
        1, ge=1, le=64, description="Processes that decide, each on the next port. 1: the control plane's own."
    )

    state_dir: AbsolutePath | None = Field(
        None,
        description="A folder for what has to outlive a restart; made if need be. Without it, that begins anew.",
    )

    tls: Tls | None = Field(None, description="TLS with certificates on both sides; without it, none.")

    @property
    def ports(self) -> range:
        """The ports of the external-processing service, one for each worker."""
        return range(self.ext_proc_port, self.ext_proc_port + self.workers)

    @property
    def access_log_port(self) -> int:
        """The port of the access log: that of the process that counts, on the cheaper transport where it has it."""
        return self.ext_proc_port if self.ext_proc_transport == "h2" and self.workers == 1 else self.xds_port

    @property
    def is_guarded(self) -> bool:
        """Whether what Envoy is told is told to nobody else: over TLS, or on this machine alone."""
        local = addresses.is_loopback(self.address) and addresses.is_loopback(self.reached_at)
        return local or self.tls is not None

    @property
    def reached_at(self) -> str:
        """The IP address that Envoy connects to."""
        return self.advertise or self.address


def nowhere(control: Control) -> Iterator[str]:
    """Find an address that nobody can connect to."""
    reached_at = control.reached_at
    if addresses.is_unspecified(reached_at):
        yield f"control.advertise: expected the IP address that Envoy connects to; {reached_at} is every address"
