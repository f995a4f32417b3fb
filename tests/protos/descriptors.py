"""Comparing our slice of Envoy's API with Envoy's own, field by field.

Envoy may have more messages, fields and values than we do, never the reverse. What would still work on the wire (an
int32 for an enum, bytes for a message) is a mismatch all the same.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

OURS = "tidegate.envoy.v1"

NOT_OF_ENVOY = {"protos/gpu_health.proto"}
"""Contracts of our own."""

PACKAGES = (
    "envoy.config.core.v3",
    "envoy.config.endpoint.v3",
    "envoy.data.accesslog.v3",
    "envoy.data.ai.v3",
    "envoy.extensions.filters.http.ai_protocol_manager.v3",
    "envoy.extensions.filters.http.ext_proc.v3",
    "envoy.service.accesslog.v3",
    "envoy.service.discovery.v3",
    "envoy.service.ext_proc.v3",
    "envoy.type.ai.v3",
    "envoy.type.v3",
)
"""The packages that ours stands for."""

ELSEWHERE = {
    f"{OURS}.Status": "google.rpc.Status",
    f"{OURS}.AttributeValue": "google.protobuf.Value",
    f"{OURS}.Attributes": "google.protobuf.Struct",
    f"{OURS}.Attributes.FieldsEntry": "google.protobuf.Struct.FieldsEntry",
}
"""What ours has from other packages."""

BYTES_FOR_STRING = {f"{OURS}.AttributeValue.string_value"}
"""What need not be UTF-8, and must be read all the same."""


def protoc(*arguments: str, root: Path) -> None:
    """Run the compiler on everything in ``root/protos``."""
    files = sorted(str(path.relative_to(root)) for path in root.glob("protos/*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", ".", *arguments, *files]
    subprocess.run(command, cwd=root, check=True, timeout=60)


def compiled(root: Path, scratch: Path) -> FileDescriptorSet:
    """Return the descriptors of everything in ``root/protos`` but of what stands for nothing of Envoy's."""
    out = scratch / "slice.pb"
    protoc(f"--descriptor_set_out={out}", root=root)
    files = FileDescriptorSet.FromString(out.read_bytes())
    return FileDescriptorSet(file=[file for file in files.file if file.name not in NOT_OF_ENVOY])


_AS_BYTES = ("TYPE_BYTES", "TYPE_STRING")


@dataclass
class Api:
    """Messages and enums by full name."""

    messages: dict[str, DescriptorProto] = field(default_factory=dict)
    enums: dict[str, EnumDescriptorProto] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Iterable[FileDescriptorProto]) -> "Api":
        api = cls()
        for file in files:
            api._add(file.package, file.message_type, file.enum_type)
        return api

    def _add(self, scope: str, messages: Iterable[DescriptorProto], enums: Iterable[EnumDescriptorProto]) -> None:
        self.enums.update((f"{scope}.{enum.name}", enum) for enum in enums)
        for message in messages:
            name = f"{scope}.{message.name}"
            self.messages[name] = message
            self._add(name, message.nested_type, message.enum_type)

    def __contains__(self, name: object) -> bool:
        return name in self.messages or name in self.enums


@dataclass
class Comparison:
    """How many of our fields and enum values were compared, and what was wrong with them."""

    ours: Api
    envoy: Api
    fields: int = 0
    values: int = 0
    mismatches: list[str] = field(default_factory=list)

    def run(self) -> "Comparison":
        for name, message in self.ours.messages.items():
            for theirs in self.counterpart(name, self.envoy.messages):
                self.message(name, message, theirs)
        for name, enum in self.ours.enums.items():
            for theirs in self.counterpart(name, self.envoy.enums):
                self.enum(name, enum, theirs)
        return self

    def candidates(self, name: str) -> list[str]:
        if name in ELSEWHERE:
            return [ELSEWHERE[name]]
        names = [package + name.removeprefix(OURS) for package in PACKAGES]
        return [theirs for theirs in names if theirs in self.envoy]

    def counterpart(self, name: str, among: Iterable[str]) -> Iterator[str]:
        """Iterate over the one name in Envoy of our ``name``; where it is not one, that is a mismatch."""
        candidates = self.candidates(name)
        if len(candidates) == 1 and candidates[0] in among:
            yield candidates[0]
        else:
            self.mismatches.append(f"{name}: stands for {candidates or 'nothing'} in Envoy")

    def message(self, name: str, ours: DescriptorProto, theirs: str) -> None:
        envoy = self.envoy.messages[theirs]
        by_name = {item.name: item for item in envoy.field}
        for item in ours.field:
            self.fields += 1
            other = by_name.get(item.name)
            if other is None:
                self.mismatches.append(f"{name}.{item.name}: {theirs} has no such field")
                continue
            for what, mine, its in zip(
                ("number", "type", "label", "oneof"), traits(ours, item), traits(envoy, other), strict=True
            ):
                if mine != its and not (f"{name}.{item.name}" in BYTES_FOR_STRING and (mine, its) == _AS_BYTES):
                    self.mismatches.append(f"{name}.{item.name}: {what} is {mine}, in {theirs} it is {its}")
            mine, its = item.type_name.lstrip("."), other.type_name.lstrip(".")
            if its not in (self.candidates(mine) if mine in self.ours else [mine]):
                self.mismatches.append(f"{name}.{item.name}: is a {mine}, in {theirs} it is a {its}")

    def enum(self, name: str, ours: EnumDescriptorProto, theirs: str) -> None:
        """Compare values; ours may bear a prefix, such as HEALTH_STATUS_DRAINING for DRAINING."""
        for value in ours.value:
            self.values += 1
            names = [other.name for other in self.envoy.enums[theirs].value if other.number == value.number]
            if not any(value.name == other or value.name.endswith(f"_{other}") for other in names):
                self.mismatches.append(f"{name}.{value.name}: in {theirs} {value.number} is {names or 'nothing'}")


def traits(message: DescriptorProto, item: FieldDescriptorProto) -> Sequence[str | int]:
    """Return the number, type, label and oneof of a field."""
    if item.proto3_optional:
        oneof = "optional"
    else:
        oneof = message.oneof_decl[item.oneof_index].name if item.HasField("oneof_index") else ""
    return (
        item.number,
        FieldDescriptorProto.Type.Name(item.type),
        FieldDescriptorProto.Label.Name(item.label),
        oneof,
    )


def compare(subset: FileDescriptorSet, envoy: FileDescriptorSet) -> Comparison:
    """Compare every message and enum of ours with its counterpart."""
    return Comparison(Api.of(subset.file), Api.of(envoy.file)).run()
