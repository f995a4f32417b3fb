"""The sections of the configuration that stand alone."""

from typing import Any

from pydantic import Field, model_validator

from tidegate import addresses
from tidegate.config_filters import MAX_FILTERS, HttpFilter
from tidegate.config_tls import ListenerTls
from tidegate.config_values import Ip, PoolName, Port, Seconds, Section
from tidegate.faults import fault, shown

REFUSE = "refuse"


class Listener(Section):
    """Where Envoy listens for clients."""

    address: Ip = Field("127.0.0.1", description="IP address that Envoy binds; 0.0.0.0 for all.")
    port: Port = Field(8080, description="Port that Envoy binds.")
    max_requests_per_second: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="A fuse: what comes beyond it, and beyond as many at once, each Envoy refuses before all else. "
        "Default: none.",
    )
    tls: ListenerTls | None = Field(None, description="TLS for clients; without it, none.")
    filters: tuple[HttpFilter, ...] = Field(
        (),
        max_length=MAX_FILTERS,
        description="HTTP filters of Envoy's that requests pass before they are decided on, in this order; such as one "
        "that finds out who asks (`authentication.metadata`).",
    )

    @property
    def asks_for_certificates(self) -> bool:
        """Whether clients are asked for certificates."""
        return self.tls is not None and self.tls.client_ca is not None

    def is_at(self, place: str) -> bool:
        """Return whether ``place`` (``ip:port``) is Envoy itself."""
        ip, port = addresses.split(place)
        if port != self.port:
            return False
        return ip == self.address or (addresses.is_loopback(ip) and addresses.overlap(ip, self.address))


class Admin(Section):
    """Where Tidegate serves /metrics, /healthz, /readyz and the pages behind `tidegate status`."""

    address: Ip = Field("127.0.0.1", description="IP address to bind.")
    port: Port = Field(9090, description="Port to bind.")


class Envoy(Section):
    """The Envoy that `tidegate up` starts."""

    admin_address: Ip = Field(
        "127.0.0.1", description="IP address of Envoy's own admin page. Keep it on loopback: it can stop Envoy."
    )
    admin_port: Port = Field(9901, description="Port of Envoy's own admin page.")
    concurrency: int = Field(2, ge=1, le=256, description="Worker threads.")
    group: PoolName | None = Field(
        None, description="The group that it is of (`envoys.groups`). Default: whichever takes it, as any other."
    )


class Scrape(Section):
    """How the engines are asked for their load."""

    interval_seconds: Seconds = Field(
        1.0, ge=0.05, description="Pause between two scrapes of one endpoint, jittered by a tenth."
    )
    timeout_seconds: Seconds = Field(2.0, ge=0.001, description="Deadline of one scrape.")
    max_bytes: int = Field(
        4_194_304,
        ge=1024,
        le=268_435_456,
        description="Largest page that is read, in bytes; a larger one counts as a failed scrape.",
    )

    @property
    def stale_after_seconds(self) -> float:
        """How long a report counts: until two scrapes in a row have brought no new one."""
        return 3 * self.interval_seconds + self.timeout_seconds


class UnknownPaths(Section):
    """What becomes of requests on paths that Tidegate does not know: `refuse`, or the pool that takes them, unread."""

    pool: PoolName | None = Field(
        description="Its name. Engines have paths that are not for everybody, such as those that load other models."
    )

    @model_validator(mode="before")
    @classmethod
    def _word(cls, value: Any) -> Any:
        if isinstance(value, cls | dict):
            return value
        if value != REFUSE:
            raise fault(f"expected {REFUSE}, or a mapping with the key pool, not {shown(value)}")
        return {"pool": None}
