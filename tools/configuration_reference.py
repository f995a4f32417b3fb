# ruff: noqa: INP001  a folder of programs, not a package
"""Writes ``docs/configuration.md`` and ``docs/configuration.schema.json`` from the configuration's own models.

Run from the repository's root: ``python -m tools.configuration_reference``. A test compares what is checked in with
what this would write.
"""

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from tidegate.config import MAX_FILE_BYTES, Config
from tidegate.scheduling import filters, pickers, scorers
from tidegate.strict_yaml import MAX_DEPTH

DOCS = Path(__file__).resolve().parent.parent / "docs"

EXAMPLE = """\
# yaml-language-server: $schema=configuration.schema.json
listener: {port: 8080}
admin: {port: 9090}
pools:
  - name: default
    engine: vllm
    models: ["*"]
    endpoints:
      - {address: "127.0.0.1:8001"}
      - {address: "127.0.0.1:8002", gpu: h100}
"""

INTRODUCTION = f"""\
# Configuration

<!-- Written by tools/configuration_reference.py from the models in tidegate/config.py; not to be edited. -->

One YAML file says everything. This one is enough:

```yaml
{EXAMPLE}```

`tidegate check FILE` says what is wrong with a file, a line for each fault, and starts nothing; its exit status is 0
for a good file and 2 for a bad one. A running Tidegate reads its file again on SIGHUP and when the file changes; a bad
file is refused with the reason, and the last good configuration goes on.

- The file is UTF-8 and at most {MAX_FILE_BYTES} bytes long, and nests at most {MAX_DEPTH} levels deep.
- Unquoted words are read as YAML 1.2 reads them: `yes`, `no`, `010` and `1:30` are text.
- Aliases, tags, a key given twice and a second document are errors. So is an unknown key.
- Each pool name, endpoint and model is given once over the whole file.
- The ports that Tidegate and Envoy listen on differ from one another where their addresses overlap, and no endpoint is
  the listener itself.

[configuration.schema.json](configuration.schema.json) is the same for editors.
"""


class _Schema(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def schema() -> dict[str, Any]:
    """Return the JSON schema of the file."""
    body = Config.model_json_schema(schema_generator=_Schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **body, "title": "Tidegate configuration"}


def schema_text() -> str:
    """Return what ``docs/configuration.schema.json`` should be."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def reference_text() -> str:
    """Return what ``docs/configuration.md`` should be."""
    body = schema()
    parts = [INTRODUCTION, *_section("The file", body, body["$defs"])]
    for key, value in body["properties"].items():
        parts += _sections(key, value, body["$defs"])
    parts.append("## Policies\n\nWhat `policy` may be:\n")
    parts.append("\n".join(_files(pickers, pickers.names())) + "\n")
    parts.append("## Filters\n\nWhat `filters` may name:\n")
    parts.append("\n".join(_files(filters, filters.names())) + "\n")
    parts.append("## Scorers\n\nWhat `scorers` may name:\n")
    parts.append("\n".join(_files(scorers, scorers.names())) + "\n")
    return "\n".join(parts)


def _sections(path: str, value: Mapping[str, Any], defs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the section for the mapping at ``path``, and those for the mappings in it."""
    model = _model(value, defs)
    if model is None:
        return
    path = f"{path}[]" if value.get("type") == "array" else path
    yield from _section(f"`{path}`", model, defs)
    for key, inner in model["properties"].items():
        yield from _sections(f"{path}.{key}", inner, defs)


def _section(title: str, model: Mapping[str, Any], defs: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {title}\n"
    yield f"{model['description']}\n"
    rows = [_row(key, value, model.get("required", ()), defs) for key, value in model["properties"].items()]
    yield "\n".join(["| key | type | default | bounds | meaning |", "|---|---|---|---|---|", *rows]) + "\n"


def _row(key: str, value: Mapping[str, Any], required: Any, defs: Mapping[str, Any]) -> str:
    inner = _model(value, defs)
    if key in required:
        default = "required"
    elif inner is not None:
        default = f"`{value['default']}`" if isinstance(value.get("default"), str) else ""
    else:
        default = "none" if value["default"] is None else f"`{json.dumps(value['default'])}`"
    # A description that a section's own says as well is left out of the schema.
    meaning = value.get("description") or (inner or {})["description"]
    return f"| `{key}` | {_type(value, inner)} | {default} | {_bounds(value)} | {meaning} |"


def _model(value: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the model of a section, or of the sections in a list; ``None`` for a plain value."""
    places = (value, value.get("items", {}), *value.get("anyOf", ()))
    reference = next((place["$ref"] for place in places if "$ref" in place), None)
    return defs[reference.rpartition("/")[2]] if reference else None


def _type(value: Mapping[str, Any], inner: Mapping[str, Any] | None) -> str:
    names = {"boolean": "true or false", "integer": "whole number", "number": "number", "string": "text"}
    names["object"] = "mapping"
    if value.get("type") == "array":
        return "list of mappings" if inner else f"list of {names[value['items']['type']]}"
    if inner is not None:
        words = [f"`{kind['const']}`" for kind in value.get("anyOf", ()) if "const" in kind]
        return " or ".join([*words, "mapping"])
    plain = value.get("type") or next(kind["type"] for kind in value["anyOf"] if kind["type"] != "null")
    return names[plain]


def _bounds(value: Mapping[str, Any]) -> str:
    """Return what a value must be, beyond its type."""
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    bounds = []
    if "minimum" in value:
        bounds.append(f"{value['minimum']} to {value['maximum']}")
    if "minItems" in value:
        bounds.append(f"at least {value['minItems']}")
    if "maxLength" in value.get("items", {}):
        bounds.append(f"each of {value['items']['minLength']} to {value['items']['maxLength']} characters")
    if "pattern" in value:
        bounds.append(f"`{value['pattern']}`")
    return ", ".join(bounds)


def _files(package: ModuleType, names: Iterable[str]) -> Iterator[str]:
    """Yield a line for each file of ``package``: its name, and the first line that it says of itself."""
    for name in names:
        module = importlib.import_module(f"{package.__name__}.{name}")
        yield f"- `{name}`: {(module.__doc__ or '').splitlines()[0]}"


def write(folder: Path) -> None:
    """Write both files into ``folder``."""
    folder.mkdir(exist_ok=True)
    (folder / "configuration.md").write_text(reference_text(), encoding="utf-8")
    (folder / "configuration.schema.json").write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    write(DOCS)
