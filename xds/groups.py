"""What the Envoys should have: one snapshot for each group of them, and who is in which group."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from protos import core_pb2
from tidegate.config_envoys import DEFAULT, MATCHED_CHARACTERS, Node
from xds.snapshot import Snapshot


class Groups(NamedTuple):
    """What is published at one time.

    Attributes:
        snapshots: by group. Those of two groups may be the same.
        group_of: names the group of a node; ``None`` where no group takes it.
    """

    snapshots: Mapping[str, Snapshot]
    group_of: Callable[[Node], str | None]

    def consistent(self) -> tuple[str, ...]:
        """Return one line for each resource that is named by another of its group and missing."""
        distinct = {id(snapshot): (group, snapshot) for group, snapshot in self.snapshots.items()}
        return tuple(
            line if group == DEFAULT else f"group {group}: {line}"
            for group, snapshot in distinct.values()
            for line in snapshot.consistent()
        )


def for_all(snapshot: Snapshot) -> Groups:
    """Return the one group that takes everybody."""
    return Groups({DEFAULT: snapshot}, lambda _: DEFAULT)


MAX_TEXTS = 1000
"""Texts in the metadata of a node; Istio's sidecars have some thirty."""

SHOWN_CHARACTERS = 256
"""How much of a node's id is kept to be shown and logged."""

_KEPT_CHARACTERS = MATCHED_CHARACTERS + 1
"""How much of a text is kept to be matched: what is longer than any pattern is told from all of them by that."""


class TooMuchSaidError(Exception):
    """A node says more of itself than is listened to."""


def introduced(node: core_pb2.Node) -> Node:
    """Return what ``node`` says of itself, of everything as much as tells which ``Match`` takes it.

    Raises:
        TooMuchSaidError: there are more than ``MAX_TEXTS``.
    """
    fields = node.metadata.fields.items()
    texts = {
        name: value.string_value[:_KEPT_CHARACTERS]
        for name, value in fields
        if value.HasField("string_value") and len(name) < _KEPT_CHARACTERS
    }
    if len(texts) > MAX_TEXTS:
        raise TooMuchSaidError
    return Node(node.id[:_KEPT_CHARACTERS], node.cluster[:_KEPT_CHARACTERS], texts)


def shown(node_id: str) -> str:
    """Return ``node_id``, or as much of it as is shown."""
    return node_id if len(node_id) <= SHOWN_CHARACTERS else f"{node_id[: SHOWN_CHARACTERS - 1]}…"
