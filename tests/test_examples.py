"""Every example of a configuration in the documents is one that can be used."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.authority import Authority
from tests.tokens.model_files import write
from tidegate import strict_yaml
from tidegate.config import parse
from tidegate.discovery import file

ROOT = Path(__file__).resolve().parent.parent
SHORTENED = (
    (r"sha256:[0-9a-f]*…", "sha256:" + "0a" * 32),
    (r"(GPU-[0-9a-f]{4})…", r"\g<1>0000-0000-4000-8000-000000000000"),
)
"""Hashes and UUIDs as documents write them, and whole ones."""


def examples() -> Iterator[Any]:
    """Yield each example with the place where it stands; Kubernetes' own objects are none."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            line = text.count("\n", 0, found.start()) + 2
            if not found[1].startswith("apiVersion:"):
                yield pytest.param(found[1], id=f"{path.relative_to(ROOT)}:{line}")


def named_pools(data: dict[str, Any]) -> Iterator[str]:
    """Yield the pools that routes and groups of Envoys name."""
    for route in data.get("routes", ()):
        yield from (choice["pool"] for choice in route.get("split", (route,)))
    for group in data.get("envoys", {}).get("groups", ()):
        yield from group.get("pools", ())


def completed(data: dict[str, Any]) -> dict[str, Any]:
    """Return ``data`` with what a configuration needs besides: the pools that it names, and endpoints for each."""
    if set(data) == {"discovery"}:
        return {"pools": [{"name": "default", **data}]}
    pools = data.setdefault("pools", [])
    known = {pool["name"] for pool in pools}
    absent = [name for name in dict.fromkeys(named_pools(data)) if name not in known]
    # Routes lead to these; in a document without any there is one that serves everything.
    pools += [{"name": name, "models": [f"{name}-model"]} for name in absent] or ([] if pools else [{"name": "all"}])
    for number, pool in enumerate(pools, 1):
        if "endpoints" not in pool and "discovery" not in pool:
            pool["endpoints"] = [{"address": f"10.9.9.{number}:8000"}]
    return data


def in_folder(data: Any, files: dict[str, str]) -> Any:
    """Return ``data`` with the files that are read in place of those that it names."""
    if isinstance(data, list):
        return [in_folder(one, files) for one in data]
    if not isinstance(data, dict):
        return data
    return {
        key: files[key] if key in files and str(value).startswith("/") else in_folder(value, files)
        for key, value in data.items()
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a configuration may name and is read at once, by its key."""
    folder = tmp_path_factory.mktemp("files")
    authority = Authority(folder)
    certificate, key = authority.issue("one")
    password = folder / "password"
    password.write_text("secret")
    found = {"certificate": certificate, "key": key, "tokenizer": write(folder / "tokenizer.json")}
    found |= {"ca": authority.certificate, "client_ca": authority.certificate, "password_file": password}
    return {name: str(path) for name, path in found.items()}


@pytest.mark.parametrize("text", [*examples()])
def test_an_example_in_a_document_can_be_used(text: str, files: dict[str, str]) -> None:
    for shortened, whole in SHORTENED:
        text = re.sub(shortened, whole, text)
    data = strict_yaml.read(text.encode())
    if isinstance(data, list):
        assert file.parse(text.encode()).found
    else:
        assert parse(yaml.safe_dump(in_folder(completed(data), files)).encode(), "tidegate.yaml").pools
