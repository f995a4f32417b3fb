"""A model's own tokenizer.json."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import processors

from tests.tokens.model_files import small, write
from tidegate.tokens import model_file
from tidegate.tokens.bounded import count_in_time, never
from tidegate.tokens.cache import CountCache
from tidegate.tokens.count import CountSource, TokenCount
from tidegate.tokens.counter import Shortfall, TokenCounter
from tidegate.tokens.model_file import ModelFileError, load

BYTES_ONLY = "abc "


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "tokenizer.json")


@pytest.fixture
def counter() -> Iterator[TokenCounter]:
    made = TokenCounter(load=lambda _: len, threads=1, deadline=float("inf"), patience=60)
    made.warm()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("hello", 1),
        ("hello hello", 2),
        ("hello world", 7),
        ("ж", 2),
        ("hello<|end|>", 2),
        ("hello\ud800", 2),
    ],
)
def test_a_text_is_counted_as_the_model_would(file: Path, text: str, tokens: int) -> None:
    assert load(file).count(text) == tokens


def test_what_a_file_says_about_length_and_special_tokens_at_the_ends_is_left_out(tmp_path: Path) -> None:
    tokenizer = small()
    tokenizer.enable_truncation(max_length=4)
    tokenizer.enable_padding(length=16)
    tokenizer.post_processor = processors.TemplateProcessing(single="<|end|> $A", special_tokens=[("<|end|>", 261)])
    count = load(write(tmp_path / "tokenizer.json", tokenizer)).count
    assert (count("hello"), count("hello" * 10)) == (1, 10)


def test_another_content_has_another_name_which_fits_the_cache(tmp_path: Path) -> None:
    tokenizer = small()
    first = load(write(tmp_path / "tokenizer.json", tokenizer))
    again = load(write(tmp_path / "again.json", tokenizer))
    tokenizer.add_tokens(["other"])
    second = load(write(tmp_path / "tokenizer.json", tokenizer))
    assert first.name == again.name != second.name
    assert CountCache.key(first.name, "hello") != CountCache.key(second.name, "hello")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "no tokenizer.json"),
        (b"{}", "no tokenizer.json"),
        (b'{"model": {"type": "BPE"}}', "no tokenizer.json"),
        (b"\xff\xfe", "no tokenizer.json"),
        (b"[" * 100_000, "no tokenizer.json"),
    ],
)
def test_a_file_that_is_none_is_said_to_be(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        load(path)
    assert said in str(caught.value)


def test_a_file_that_is_too_large_is_not_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "MAX_BYTES", 100)
    with pytest.raises(ModelFileError, match="larger than 100 bytes"):
        load(file)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="Is a directory"):
        load(tmp_path)


def test_without_the_package_it_says_what_to_install(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(model_file, "importlib", SimpleNamespace(import_module=missing))
    with pytest.raises(ModelFileError, match=r"install tidegate\[tokenizers\]"):
        load(file)


def test_it_is_given_less_to_do_at_a_time(file: Path) -> None:
    sizes: list[int] = []
    tokenizer = load(file)._replace(count=lambda text: sizes.append(len(text)) or len(text))  # type: ignore[func-returns-value]
    exact = count_in_time([BYTES_ONLY * 5_000], tokenizer, CountCache(0), never, random.Random(1))
    assert exact == TokenCount(20_000, CountSource.EXACT)
    assert max(sizes) <= 4_096
    sizes.clear()
    sampled = count_in_time([BYTES_ONLY * 100_000], tokenizer, CountCache(0), never, random.Random(1))
    assert sampled.source is CountSource.SAMPLED
    assert max(sizes) <= 4_096
    assert sum(sizes) <= 34_000


async def test_the_counter_prefers_a_models_own_tokenizer_where_there_is_one(file: Path, counter: TokenCounter) -> None:
    counter.use({str(file): load(file)})
    assert await counter.count("m", ["hello"], str(file)) == TokenCount(1, CountSource.EXACT)
    assert await counter.count("m", ["hello"]) == TokenCount(5, CountSource.EXACT)
    counter.use({})
    assert await counter.count("m", ["hello"], str(file)) == TokenCount(5, CountSource.EXACT)


async def test_two_kilobytes_are_counted_at_once_and_more_in_a_thread(file: Path, counter: TokenCounter) -> None:
    threads: list[int] = []
    own = load(file)

    def count(text: str) -> int:
        threads.append(threading.get_ident())
        return own.count(text)

    counter.use({"own": own._replace(count=count)})
    await counter.count("m", [BYTES_ONLY * 480], "own")
    assert set(threads) == {threading.get_ident()}
    threads.clear()
    assert await counter.count("m", [BYTES_ONLY * 1_000], "own") == TokenCount(4_000, CountSource.EXACT)
    assert threading.get_ident() not in threads


class Panic(BaseException):
    """What a crash in native code looks like."""


@pytest.mark.parametrize("error", [Panic("native"), ValueError("regex"), MemoryError()])
@pytest.mark.parametrize("text", ["hello", "hello " * 2_000], ids=["inline", "in a thread"])
async def test_one_that_raises_anything_costs_an_estimate(
    file: Path, counter: TokenCounter, error: BaseException, text: str
) -> None:
    def count(_: str) -> int:
        raise error

    counter.use({"own": load(file)._replace(count=count)})
    assert await counter.count("m", [text], "own") == TokenCount(-(-len(text) // 4), CountSource.BYTES)
    assert counter.stats.shortfalls[Shortfall.FAILED] == 1
    assert (await counter.count("m", [text])).source is CountSource.EXACT
