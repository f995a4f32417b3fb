"""``tidegate check``: the verdict on a file, and its exit status."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.configurations import EXAMPLE
from tidegate.cli import main
from tidegate.config_sections import Listener


def check(file: Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["check", str(file)])
    return result.exit_code, result.stdout, result.stderr


def test_a_good_file_is_summed_up(tmp_path: Path) -> None:
    file = tmp_path / "tidegate.yaml"
    file.write_bytes(EXAMPLE)
    assert check(file) == (0, f"{file}: 1 pool, 2 endpoints\n", "")


def test_several_pools_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "tidegate.yaml"
    file.write_bytes(EXAMPLE + b'  - {name: other, models: [qwen], endpoints: [{address: "127.0.0.1:8003"}]}\n')
    assert check(file)[:2] == (0, f"{file}: 2 pools, 3 endpoints\n")


def test_every_fault_of_a_bad_file_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "tidegate.yaml"
    file.write_text("listener: {prot: 8080}\nadmin: {port: 0}\npools: [{name: a, endpoints: []}]\n")
    status, said, faults = check(file)
    assert (status, said) == (2, "")
    assert faults.splitlines() == [
        f"{file}: listener.prot: unknown key; expected one of {', '.join(Listener.model_fields)}",
        f"{file}: admin.port: expected at least 1, not 0",
        f"{file}: pools[0].endpoints: expected at least 1 in the list, not an empty list",
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read (No such file or directory); expected a YAML file"),
        (b"", "expected a mapping with the keys listener, admin"),
        (b"pools: [", "not valid YAML"),
        (b"\xff", "expected UTF-8 text"),
    ],
)
def test_what_is_no_configuration_is_status_2_and_one_line(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "tidegate.yaml"
    if content is not None:
        file.write_bytes(content)
    status, _, faults = check(file)
    assert status == 2
    assert len(faults.splitlines()) == 1
    assert faults.startswith(str(file))
    assert said in faults


def test_a_directory_is_status_2(tmp_path: Path) -> None:
    status, _, faults = check(tmp_path)
    assert status == 2
    assert "Is a directory" in faults


def test_without_a_file_the_usage_is_shown() -> None:
    result = CliRunner().invoke(main, ["check"])
    assert result.exit_code == 2
    assert "Missing argument 'FILE'" in result.stderr


def test_a_tokenizer_without_the_package_that_reads_it_is_status_2_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tidegate.yaml"
    file.write_bytes(EXAMPLE + b"    tokenizer: /models/tokenizer.json\n")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    status, said, faults = check(file)
    assert (status, said) == (2, "")
    assert "pools[0].tokenizer: expected a tokenizer.json" in faults
    assert "install tidegate[tokenizers]" in faults


def test_endpoints_in_a_file_that_would_be_left_out_are_named(tmp_path: Path) -> None:
    file, engines = tmp_path / "tidegate.yaml", tmp_path / "engines.yaml"
    file.write_text(f"pools: [{{name: found, discovery: {{file: {{path: {engines}}}}}}}]\n")
    assert check(file) == (0, f"{file}: 1 pool, 0 endpoints\n", "")
    engines.write_text("".join(f'- {{address: "127.0.0.1:{port}"}}\n' for port in range(1, 6)))
    status, _, said = check(file)
    assert status == 0
    assert said.startswith(f"{file}: pool found: {engines} names endpoints that are left out: 127.0.0.1:1, ")
    assert "127.0.0.1:4" not in said
    assert "and 2 more" in said
    assert "discovery.allow" in said
    engines.write_text("- {adress: 1}\n")
    assert "says nothing that can be used" in check(file)[2]
    engines.write_text('- {address: "10.0.0.1:1"}\n')
    assert check(file)[2] == ""
