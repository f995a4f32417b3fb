"""Which endpoints Kubernetes' objects stand for: pure.

Objects are known by their UIDs: a pod that is made anew under an old name is another one, and a late word about the old
one does not concern it. What is older than the list that a watch began with is history, and no news.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from tidegate import addresses
from tidegate.discovery import labels, nested
from tidegate.discovery.contract import Found, News, Removed, Reset, Upserted

PREFIX = "tidegate.io/"
"""What the labels begin with that are read (see ``labels``)."""

MAX_PORTS = 8
"""Target ports of an InferencePool, by its API."""


class Meta(msgspec.Struct, rename="camel"):
    """An object's metadata."""

    uid: str = ""
    namespace: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _PodStatus(msgspec.Struct):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[_Condition] | None = None


class _PodPlacement(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _Pod(msgspec.Struct):
    metadata: Meta
    spec: _PodPlacement = msgspec.field(default_factory=_PodPlacement)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _EndpointConditions(msgspec.Struct):
    ready: bool | None = None
    terminating: bool | None = None


class _Endpoint(msgspec.Struct, rename="camel"):
    addresses: list[str]
    node_name: str | None = None
    conditions: _EndpointConditions | None = None


class _Port(msgspec.Struct):
    port: int | None = None
    protocol: str = "TCP"


class _Slice(msgspec.Struct, rename="camel"):
    metadata: Meta
    address_type: str = ""
    endpoints: list[_Endpoint] | None = None
    ports: list[_Port] | None = None


class _Object(msgspec.Struct):
    metadata: Meta


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _TargetPort(msgspec.Struct):
    number: int


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str]


class _PoolSpec(msgspec.Struct, rename="camel"):
    selector: _Selector
    target_ports: list[_TargetPort]


class _InferencePool(msgspec.Struct):
    metadata: Meta
    spec: _PoolSpec


class Shape(NamedTuple):
    """Which pods belong to a pool: those that match ``selector``, at ``ports``."""

    selector: str
    ports: tuple[int, ...]


class Stale(Exception):  # noqa: N818  it says what a watch is
    """What is watched is not known from here on any more: everything has to be listed again."""


Read = Callable[[bytes], Mapping[str, Found]]


def inference_pool(text: bytes, namespace: str) -> Shape:
    """Return which pods the InferencePool in ``text`` selects.

    Raises:
        msgspec.DecodeError: it is none.
        ValueError: it is in another namespace, or selects nothing or everything.
    """
    pool = nested.decode(text, _InferencePool)
    ports = tuple(port.number for port in pool.spec.target_ports[:MAX_PORTS] if 1 <= port.number <= 65535)
    chosen = pool.spec.selector.match_labels
    if pool.metadata.namespace != namespace or pool.metadata.deletion_timestamp or not (ports and chosen):
        raise ValueError("an InferencePool of this namespace with a selector and ports was expected")
    return Shape(",".join(f"{key}={value}" for key, value in sorted(chosen.items())), ports)


def pods(namespace: str, ports: Sequence[int]) -> Read:
    """Return what reads a pod of ``namespace``: an endpoint at each of ``ports`` while it is ready.

    While it is being deleted it drains, ready or not: it goes on with what it has, for its grace.
    """

    def read(text: bytes) -> Mapping[str, Found]:
        pod = nested.decode(text, _Pod)
        meta, status = pod.metadata, pod.status
        ready = any(one.type == "Ready" and one.status == "True" for one in status.conditions or ())
        leaves = bool(meta.deletion_timestamp)
        over = status.phase in {"Succeeded", "Failed"}  # and its address somebody else's, perhaps
        if meta.namespace != namespace or over or not (status.pod_ip and (ready or leaves)):
            return {}
        return _each(meta, [status.pod_ip], ports, pod.spec.node_name, leaves=leaves)

    return read


def slices(namespace: str, port: int | None) -> Read:
    """Return what reads an EndpointSlice of ``namespace``: those of its endpoints that are ready.

    They are reached at ``port``, which must be one of its ports, or at the first of these. Whether an endpoint is ready
    that does not say so is left to us by the API, and is to be taken for yes. One that is terminating drains.
    """

    def read(text: bytes) -> Mapping[str, Found]:
        one = nested.decode(text, _Slice)
        offered = [offer.port for offer in one.ports or () if offer.port and offer.protocol == "TCP"]
        if one.metadata.namespace != namespace or one.address_type not in {"IPv4", "IPv6"}:
            return {}
        wanted = offered[:1] if port is None else [port] if port in offered else []
        found: dict[str, Found] = {}
        for endpoint in one.endpoints or ():
            conditions = endpoint.conditions or _EndpointConditions()
            leaves = bool(conditions.terminating)
            if leaves or conditions.ready is not False:
                found |= _each(one.metadata, endpoint.addresses[:1], wanted, endpoint.node_name, leaves=leaves)
        return found

    return read


def _each(
    meta: Meta, hosts: Iterable[str], ports: Iterable[int], node: str | None, *, leaves: bool
) -> dict[str, Found]:
    found: dict[str, Found] = {}
    for host in hosts:
        for port in ports:
            try:
                place = addresses.ip_and_port(addresses.joined(addresses.ip(host), port))
            except ValueError:
                continue
            one = labels.found(place, meta.labels or {}, PREFIX, node=node or "")
            if leaves:
                one = one._replace(endpoint=replace(one.endpoint, drain=True))
            found[f"{meta.uid}/{place}"] = one
    return found


class Table:
    """The objects of one collection, and the endpoints that they stand for."""

    def __init__(self, read: Read) -> None:
        """Have ``read`` say which endpoints an object stands for, by keys that begin with its UID."""
        self._read = read
        self._keys: dict[str, set[str]] = {}
        self._version = 0

    def listed(self, items: Iterable[bytes], version: str) -> Reset:
        """Take in everything there is, as of ``version``; an object that cannot be read costs the others nothing."""
        self._keys, self._version = {}, _number(version)
        found: dict[str, Found] = {}
        for item in items:
            try:
                uid, known = nested.decode(item, _Object).metadata.uid, self._read(item)
            except (msgspec.DecodeError, ValueError):
                continue
            self._keys[uid] = set(known)
            found.update(known)
        return Reset(found)

    def told(self, line: bytes) -> list[News]:
        """Take in one event of a watch that began with the list; return what follows from it.

        Raises:
            Stale: it says that the watch has come to an end, such as with 410 Gone.
            msgspec.DecodeError: it is no event.
        """
        event = nested.decode(line, _Event)
        if event.type == "BOOKMARK":
            return []
        if event.type not in {"ADDED", "MODIFIED", "DELETED"}:
            raise Stale
        try:
            meta = nested.decode(event.object, _Object).metadata
        except msgspec.DecodeError:
            if bytes(event.object)[:1] == b"{":
                return []  # nothing says which one it is
            raise
        version = _number(meta.resource_version)
        if version and version <= self._version:
            return []
        try:
            known = {} if event.type == "DELETED" else self._read(event.object)
        except (msgspec.DecodeError, ValueError):
            known = {}
        before = self._keys.pop(meta.uid, set())
        if event.type != "DELETED":
            self._keys[meta.uid] = set(known)
        gone = sorted(before - known.keys())
        return [*(Upserted(key, found) for key, found in known.items()), *map(Removed, gone)]


def _number(version: str) -> int:
    """Return a resource version as the number that it is (KEP-5504); 0 for one that is not."""
    return int(version) if version.isascii() and version.isdigit() and len(version) < 20 else 0
