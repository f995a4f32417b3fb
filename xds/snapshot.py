"""What every Envoy should have: an immutable set of resources that knows whether it is complete."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from xds.type_urls import ORDER, SECRET, short


class Reference(NamedTuple):
    """One resource's mention of another."""

    type_url: str
    name: str


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource, serialized once.

    Attributes:
        type_url: its type.
        name: unique within the type.
        body: the serialized Envoy message.
        references: the resources that this one is useless without.
        version: a hash of ``body``: the same content always bears the same version, whoever serves it, so that an Envoy
            that reconnects to a restarted control plane is sent nothing that it has already.
    """

    type_url: str
    name: str
    body: bytes = field(repr=False)  # it may hold a private key
    references: frozenset[Reference] = frozenset()
    version: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", hashlib.sha256(self.body).hexdigest()[:16])


class Snapshot:
    """Resources by type and name."""

    __slots__ = ("_by_type",)

    def __init__(self, resources: Iterable[Resource]) -> None:
        """Take in ``resources``.

        Raises:
            ValueError: two of them bear one name, or a type is not served.
        """
        by_type: dict[str, dict[str, Resource]] = {type_url: {} for type_url in ORDER}
        for resource in resources:
            if resource.type_url not in by_type:
                raise ValueError(f"{resource.name}: no such resource type is served: {resource.type_url}")
            if resource.name in by_type[resource.type_url]:
                raise ValueError(f"two resources of type {resource.type_url} are named {resource.name}")
            by_type[resource.type_url][resource.name] = resource
        self._by_type = {type_url: MappingProxyType(named) for type_url, named in by_type.items()}

    def of_type(self, type_url: str) -> Mapping[str, Resource]:
        """Return the resources of one type by name; empty for a type that is not served."""
        return self._by_type.get(type_url, {})

    def consistent(self) -> tuple[str, ...]:
        """Return one line for each resource that is named by another and missing; empty when all is well.

        Envoy accepts a route that names an unknown cluster and answers 503, so the check belongs here. Secrets may be
        missing: one file that is broken must not keep all else from Envoy, and what names it waits for it there.
        """
        return tuple(
            f"{short(resource.type_url)} {resource.name} names the {short(wanted.type_url)} {wanted.name}, "
            "which does not exist"
            for type_url in ORDER
            for resource in self._by_type[type_url].values()
            for wanted in sorted(resource.references)
            if wanted.type_url != SECRET and wanted.name not in self.of_type(wanted.type_url)
        )
