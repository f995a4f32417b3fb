"""What the Envoys should have: one snapshot for each group of them, and who is in which group."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from protos import core_pb2
from tidegate.config_envoys import DEFAULT, Node
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


def introduced(node: core_pb2.Node) -> Node:
    """Return what ``node`` says of itself."""
    fields = node.metadata.fields.items()
    texts = {name: value.string_value for name, value in fields if value.HasField("string_value")}
    return Node(node.id, node.cluster, texts)
