"""The part of the configuration that says where endpoints are found, beyond those that it lists."""

import ipaddress
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from tidegate import addresses
from tidegate.config_values import AbsolutePath, IpAndPort, Port, Seconds, Section
from tidegate.faults import fault, shown


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise fault(f"expected a network, such as 10.0.0.0/8 or fd00::/8, not {shown(text)}") from None


def _http_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        whole = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or 1)
    except ValueError:
        whole = False
    if not whole or parts.username or parts.password or parts.query or parts.fragment or parts.path.strip("/"):
        raise fault(f"expected a URL such as http://127.0.0.1:8500, without a path, not {shown(text)}")
    return text.rstrip("/")


# Services are told from hosts by underscores (RFC 2782).
_NAME = r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*"


def _dns_name(text: str) -> str:
    name = text.removesuffix(".")
    if not re.fullmatch(_NAME, name, re.ASCII) or addresses.is_address(name):
        raise fault(f"expected a DNS name, such as llm.example.com, not {shown(text)}")
    return name.lower()


Network = Annotated[str, AfterValidator(_network)]
DnsName = Annotated[str, AfterValidator(_dns_name), Field(max_length=254)]
HttpUrl = Annotated[str, AfterValidator(_http_url), Field(max_length=1024)]
Word = Annotated[str, Field(min_length=1, max_length=256)]


class FileSource(Section):
    """A file with the endpoints, YAML or JSON, which is watched."""

    path: AbsolutePath = Field(
        description="Its absolute path: a list of endpoints, each with the keys of `endpoints[]`, and `engine`."
    )


class DnsSource(Section):
    """Names that a DNS server resolves."""

    name: DnsName = Field(description="The name, fully qualified.")
    records: Literal["a", "aaaa", "both", "srv"] = Field(
        "a",
        description="What is asked for: addresses of one family or of both, or services, whose ports and weights count "
        "and of which only the best priority is taken.",
    )
    port: Port | None = Field(None, description="The engines' port; not with `srv`, which says it.")
    servers: tuple[IpAndPort, ...] = Field((), description="The DNS servers to ask; by default the system's.")
    min_seconds: Seconds = Field(5.0, ge=0.1, description="The least time between two questions, whatever the TTL.")
    max_seconds: Seconds = Field(300.0, ge=1.0, description="The most, likewise.")
    timeout_seconds: Seconds = Field(3.0, ge=0.1, description="Deadline of one question to one server.")

    @model_validator(mode="after")
    def _whole(self) -> "DnsSource":
        if (self.port is None) != (self.records == "srv"):
            raise fault("expected a port with addresses, and none with srv")
        return self


class ConsulSource(Section):
    """A service in Consul's catalogue, followed with blocking queries."""

    url: HttpUrl = Field("http://127.0.0.1:8500", description="Where its HTTP API is.")
    service: Word = Field(description="The service's name.")
    tag: Word | None = Field(None, description="A tag that the instances must bear.")
    datacenter: Word | None = Field(None, description="The datacenter to ask; by default the agent's own.")
    namespace: Word | None = Field(None, description="The namespace to ask (Consul Enterprise).")
    health: Literal["passing", "warning", "any"] = Field(
        "passing", description="The worst health with which an instance counts; `any` takes critical ones too."
    )
    token_file: AbsolutePath | None = Field(
        None, description="Absolute path of the file with the ACL token, which is read before each question."
    )
    ca: AbsolutePath | None = Field(
        None, description="Absolute path of the authorities (PEM) for https; by default the system's."
    )
    wait_seconds: Seconds = Field(60.0, ge=1.0, description="How long a question waits for a change.")


SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes puts what a pod proves itself with, and the authority of its API."""


class KubernetesSource(Section):
    """Pods or slices, listed and watched: exactly one of `service`, `selector` and `inference_pool`."""

    url: HttpUrl = Field("https://kubernetes.default.svc", description="Where the API is.")
    namespace: Word = Field(description="The one namespace whose objects count.")
    service: Word | None = Field(None, description="A service, whose EndpointSlices are followed.")
    selector: Word | None = Field(None, description="Labels that choose pods, such as `app=vllm,tier in (gpu)`.")
    inference_pool: Word | None = Field(
        None,
        description="An InferencePool (`inference.networking.k8s.io/v1`), whose selector chooses pods, and whose "
        "target ports are theirs.",
    )
    port: Port | None = Field(
        None, description="The engines' port; required with `selector`; with `service`, by default its first."
    )
    token_file: AbsolutePath | None = Field(
        f"{SERVICE_ACCOUNT}/token",
        description="Absolute path of the file with the bearer token, which is read before each question.",
    )
    ca: AbsolutePath | None = Field(
        f"{SERVICE_ACCOUNT}/ca.crt", description="Absolute path of the authorities (PEM) for https; none: the system's."
    )
    relist_seconds: Seconds = Field(
        240.0, ge=1.0, le=300.0, description="How long a watch is trusted until everything is listed again."
    )

    @model_validator(mode="after")
    def _one_choice(self) -> "KubernetesSource":
        if sum(choice is not None for choice in (self.service, self.selector, self.inference_pool)) != 1:
            raise fault("expected exactly one of service, selector, inference_pool")
        if (self.selector is not None and self.port is None) or (self.inference_pool and self.port):
            raise fault("expected a port with selector, and none with inference_pool")
        return self


class Discovery(Section):
    """Where a pool's endpoints are found, besides those listed: exactly one of the sources."""

    file: FileSource | None = Field(None, description="A file with the endpoints, YAML or JSON, which is watched.")
    dns: DnsSource | None = Field(None, description="Names that a DNS server resolves.")
    consul: ConsulSource | None = Field(None, description="A service in Consul's catalogue.")
    kubernetes: KubernetesSource | None = Field(None, description="Pods, or a service, of Kubernetes.")
    allow: tuple[Network, ...] = Field(
        (),
        description="Networks that endpoints may be in; without any, all but loopback, link-local, multicast and "
        "reserved addresses.",
    )
    max_shrink: float = Field(
        0.5,
        ge=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="The share of the endpoints that may go at once; when more go, or all, it must be confirmed later.",
    )
    hold_seconds: Seconds = Field(30.0, ge=0.0, description="How long after that it is confirmed at the earliest.")
    linger_seconds: Seconds | None = Field(
        None,
        ge=0.0,
        description="How long an endpoint must be missing until it is removed; by default 0, with `dns` 10, with "
        "`consul` 3.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> "Discovery":
        named = [kind for kind in SOURCES if getattr(self, kind) is not None]
        if len(named) != 1:
            raise fault(f"expected exactly one of {', '.join(SOURCES)}, not {' and '.join(named) or 'none'}")
        return self

    @property
    def kind(self) -> str:
        """The name of the source."""
        return next(kind for kind in SOURCES if getattr(self, kind) is not None)

    @property
    def lingers(self) -> float:
        """Seconds that an endpoint must be missing until it is removed."""
        return _LINGER.get(self.kind, 0.0) if self.linger_seconds is None else self.linger_seconds


SOURCES = ("file", "dns", "consul", "kubernetes")
_LINGER = {"dns": 10.0, "consul": 3.0}
"""Answers of these flap by themselves: rotated record sets, health checks that fail once."""
