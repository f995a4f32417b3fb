"""Groups of Envoys in the configuration file: which Envoys get which listener and which pools."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from tidegate.config_mirror import Mirrored
from tidegate.config_routes import Route
from tidegate.config_sections import Listener
from tidegate.config_tls import ListenerTls
from tidegate.config_values import PoolName, Section
from tidegate.faults import fault, shown

MAX_GROUPS: Final = 16
MAX_LABELS: Final = 16

MATCHED_CHARACTERS: Final = 512
"""No pattern, and no name or text of metadata, that an Envoy is matched with is longer."""

DEFAULT: Final = "default"
"""The group of those that no other takes, where they are not refused."""

NODE_ID: Final = "envoy"
NODE_CLUSTER: Final = "tidegate"
"""What an Envoy is called where nothing says otherwise."""


class Node(NamedTuple):
    """What an Envoy says of itself.

    Attributes:
        id: its ``node.id``.
        cluster: its ``node.cluster``.
        metadata: what is text in its ``node.metadata``, at the first level.
    """

    id: str
    cluster: str = ""
    metadata: Mapping[str, str] = {}


def _pairs(value: Any) -> Any:
    if not isinstance(value, dict):
        raise fault(f"expected a mapping, not {shown(value)}")
    for name, text in value.items():
        if not isinstance(text, str) or not name or len(name) + len(text) > MATCHED_CHARACTERS:
            raise fault(f"expected a text of at most {MATCHED_CHARACTERS} characters for each name, not {shown(text)}")
    if len(value) > MAX_LABELS:
        raise fault(f"expected at most {MAX_LABELS} names")
    return tuple(sorted(value.items()))


Labels = Annotated[
    tuple[tuple[str, str], ...],
    BeforeValidator(_pairs),
    PlainSerializer(dict),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
]
"""A mapping from names to texts, held as pairs: sections have hashes."""


def _pattern(text: str) -> str:
    if "*" in text[:-1]:
        raise fault(f"expected a * at the end alone, not {shown(text)}")
    return text


Pattern = Annotated[str, AfterValidator(_pattern), Field(min_length=1, max_length=256)]


def _fits(text: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern


class Match(Section):
    """What an Envoy must say of itself, all of it."""

    id: Pattern | None = Field(None, description="Its `node.id`; with `*` at its end, what that begins with.")
    cluster: Pattern | None = Field(None, description="Its `node.cluster`, likewise.")
    metadata: Labels = Field((), description="Texts that its `node.metadata` must have under these names.")

    def takes(self, node: Node) -> bool:
        """Tell whether ``node`` is one of those."""
        known = all(node.metadata.get(name) == text for name, text in self.metadata)
        return known and _fits(node.id, self.id) and _fits(node.cluster, self.cluster)

    def node(self, node_id: str = "", rest: str = NODE_ID) -> Node:
        """Return one of those: called ``node_id``, or else by its pattern, with ``rest`` in place of a ``*``."""
        cluster = (self.cluster or NODE_CLUSTER).replace("*", rest)
        return Node(node_id or (self.id or NODE_ID).replace("*", rest), cluster, dict(self.metadata))


class Group(Section):
    """Envoys that get the same."""

    name: PoolName = Field(description="Unique name: lower-case letters, digits and hyphens; not `default`.")
    match: Match = Field(Match(), description="Which Envoys are in it. Of several groups the first that fits counts.")
    listener: Listener | None = Field(
        None, description="Where they listen for clients, in place of the section `listener`."
    )
    pools: tuple[PoolName, ...] = Field(
        (),
        max_length=10_000,
        description="The pools that they know: a request for any other is answered 404. Empty: all of them.",
    )


class Envoys(Section):
    """The groups of Envoys."""

    groups: tuple[Group, ...] = Field(
        (), max_length=MAX_GROUPS, description="Envoys that get a listener or pools of their own."
    )
    others: Literal["default", "refuse"] = Field(
        "default",
        description="What becomes of Envoys that no group takes. `default`: they get all pools, and the section "
        "`listener`. `refuse`: nothing; they are told so, and keep what they have.",
    )

    def group_of(self, node: Node) -> str | None:
        """Return the name of the group that takes ``node``; ``None`` where it is refused."""
        for group in self.groups:
            if group.match.takes(node):
                return group.name
        return DEFAULT if self.others == DEFAULT else None

    def node(self, group: str | None, node_id: str = "") -> Node:
        """Return what an Envoy of ``group`` may say of itself; of none, where that is ``None``.

        Raises:
            ValueError: there is no such group, or such an Envoy would not be of it.
        """
        names = [one.name for one in self.groups]
        if group not in {None, DEFAULT, *names}:
            raise ValueError(f"expected one of {', '.join([*names, DEFAULT])}, not {shown(group)}")
        match = next((one.match for one in self.groups if one.name == group), Match())
        node = match.node(node_id)
        found = self.group_of(node)
        if found is None:
            raise ValueError(f"an Envoy with the id {shown(node.id)} is refused; expected one of {', '.join(names)}")
        if group not in {None, found}:
            raise ValueError(f"an Envoy with the id {shown(node.id)} is of the group {found}, not of {group}")
        return node

    def widened(self, before: "Envoys") -> "Envoys":
        """Return this with the pools that groups of the same name had before, for as long as both count."""
        had = {group.name: group.pools for group in before.groups}
        return self.model_copy(update={"groups": tuple(_with(group, had.get(group.name)) for group in self.groups)})


def _with(group: Group, had: tuple[str, ...] | None) -> Group:
    if had is None or not group.pools:
        return group
    return group.model_copy(update={"pools": tuple(dict.fromkeys((*group.pools, *had))) if had else ()})


def misplaced(
    envoys: Envoys, pools: Sequence[Mirrored], routes: Sequence[Route], needs_client_ca: bool
) -> Iterator[str]:
    """Yield a line for each thing that makes no sense of a group."""
    names, mirrors = [pool.name for pool in pools], {pool.name: pool.mirror for pool in pools}
    seen: dict[str, int] = {DEFAULT: -1}
    for at, group in enumerate(envoys.groups):
        key = f"envoys.groups[{at}]"
        if (first := seen.setdefault(group.name, at)) != at:
            taken = "stands for those in no group" if first < 0 else f"is given already at envoys.groups[{first}].name"
            yield f"{key}.name: {shown(group.name)} {taken}; expected another"
        # Whatever comes in place of a star is not a whole name that an earlier group waits for.
        one = Node((group.match.id or "").replace("*", "\0"), (group.match.cluster or "").replace("*", "\0"))
        if before := _taken_by(envoys.groups[:at], one._replace(metadata=dict(group.match.metadata))):
            yield f"{key}.match: the group {before} before it takes all of them; expected another order"
        yield from (
            f"{key}.pools: expected one of {', '.join(names)}, not {shown(name)}"
            for name in group.pools
            if name not in names
        )
        known = group.pools or names
        for name in group.pools:
            mirror = mirrors.get(name)
            if mirror is not None and mirror.pool not in known:
                yield f"{key}.pools: expected {mirror.pool} beside {name}, which is copied there"
        yield from _halved(key, known, routes)
        if needs_client_ca and group.listener is not None and not group.listener.asks_for_certificates:
            yield f"{key}.listener.tls.client_ca: expected it, as authentication.certificate is given"


def _taken_by(groups: Sequence[Group], node: Node) -> str | None:
    return next((group.name for group in groups if group.match.takes(node)), None)


def _halved(key: str, known: Collection[str], routes: Sequence[Route]) -> Iterator[str]:
    for number, route in enumerate(routes):
        inside = [pool for pool in route.pools if pool in known]
        if inside and len(inside) < len(set(route.pools)):
            yield f"{key}.pools: expected all pools of the split in routes[{number}], or none of them"


def looping(envoys: Envoys, endpoints: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each of ``endpoints``, addresses by their keys, at which Envoys of a group listen themselves."""
    for at, group in enumerate(envoys.groups):
        for key, address in endpoints.items():
            if group.listener is not None and group.listener.is_at(address):
                yield f"{key}: {address} is where envoys.groups[{at}] listens for clients; expected an engine"


def ungrouped(envoys: Envoys, group: str | None) -> Iterator[str]:
    """Find that the Envoy of `tidegate up` would not be of ``group``, of which it is to be."""
    if group is not None:
        try:
            envoys.node(group)
        except ValueError as error:
            yield f"envoy.group: {error}"


def listening(listener: Listener, envoys: Envoys) -> Iterator[tuple[str, ListenerTls | None]]:
    """Yield how each listener is secured, by its key."""
    yield "listener.tls", listener.tls
    for at, group in enumerate(envoys.groups):
        yield f"envoys.groups[{at}].listener.tls", None if group.listener is None else group.listener.tls


def listener_of(envoys: Envoys, group: str | None, listener: Listener) -> tuple[str, Listener]:
    """Return the listener of ``group``, and by what key it is given; ``listener`` is that of all others."""
    for at, one in enumerate(envoys.groups):
        if one.name == group and one.listener is not None:
            return f"envoys.groups[{at}].listener", one.listener
    return "listener", listener
