"""The beginnings of prompts, in the blocks of engines that tell what they cache."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tokenizers import Tokenizer

from extproc.apis import chat_completions, completions
from extproc.body import ParsedBody
from tests.configurations import parsed
from tests.tokens.model_files import write
from tests.tokens.test_chat_template import CHATML
from tidegate.discovery import static
from tidegate.engines.kv_events import CacheFollower, decode
from tidegate.fleet.events import BlocksStored
from tidegate.runtime import token_prefixes
from tidegate.runtime.token_prefixes import TokenPrefixes
from tidegate.scheduling.routing import ModelRoutes
from tidegate.tokens import model_file, prefix
from tidegate.tokens.counter import TokenCounter
from tidegate.tokens.prefix import Prefix, of_token_ids

TEXT = "hello hello, this is a text of more than a few tokens. " * 4


class Bench:
    """The pool ``told``, with an adapter ``sql``, and the pool ``other``, whose engines do not tell."""

    def __init__(self, folder: Path, template: str | None = CHATML) -> None:
        file = write(folder / "tokenizer.json")
        if template is not None:
            (folder / "chat_template.jinja").write_text(template)
        told = {"name": "told", "models": ["m"], "adapters": ["sql"], "tokenizer": str(file)}
        config = parsed(
            {
                "pools": [
                    {**told, "kv_events": {"block_size": 4}, "endpoints": [{"address": "10.0.0.1:1"}]},
                    {"name": "other", "models": ["o"], "endpoints": [{"address": "10.0.0.2:1"}]},
                ]
            }
        )
        self.counter = TokenCounter(load=lambda _: len, threads=1, patience=60)
        loaded = {str(file): model_file.load(file)}
        self.tokenizer = Tokenizer.from_file(str(file))
        self.prefixes = TokenPrefixes(ModelRoutes(static.declared(config).pools).find, self.counter, loaded.get)
        assert not self.prefixes
        self.prefixes.configure(config)
        assert self.prefixes

    def ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    async def of(self, body: ParsedBody, pool: str = "") -> Prefix | None:
        return await self.prefixes.beginning(body, pool)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.counter.close()


def completion(**fields: Any) -> ParsedBody:
    return completions.parse(json.dumps({"model": "m", **fields}).encode())


def chat(*contents: Any, **fields: Any) -> ParsedBody:
    messages = [{"role": "user", "content": content} for content in contents]
    return chat_completions.parse(json.dumps({"model": "m", "messages": messages, **fields}).encode())


async def test_token_ids_are_cut_as_they_come(bench: Bench) -> None:
    ids = list(range(50, 61))
    assert await bench.of(completion(prompt=ids)) == of_token_ids(ids, 4, ("",))
    assert await bench.of(completion(prompt=ids), "told") == of_token_ids(ids, 4, ("",))


async def test_a_text_is_encoded_by_the_models_own_tokenizer(bench: Bench) -> None:
    assert await bench.of(completion(prompt=TEXT)) == of_token_ids(bench.ids(TEXT), 4, ("",))


async def test_a_chat_is_laid_out_and_encoded(bench: Bench) -> None:
    text = f"<|im_start|>user\n{TEXT}<|im_end|>\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    assert await bench.of(chat(TEXT, "go on")) == of_token_ids(bench.ids(text), 4, ("",))
    with_tools = await bench.of(chat(TEXT, tools=[{"type": "function"}]))
    assert with_tools is not None
    assert with_tools.hashes[0] == of_token_ids(bench.ids('<tools>[{"type": "function"}]'), 4, ("",)).hashes[0]


async def test_an_adapter_and_a_salt_keep_prompts_apart(bench: Bench) -> None:
    ids = list(range(8))
    assert await bench.of(completion(model="sql", prompt=ids)) == of_token_ids(ids, 4, ("sql",))
    assert await bench.of(completion(prompt=ids, cache_salt="s")) == of_token_ids(ids, 4, ("", "s"))


@pytest.mark.parametrize("salt", [None, "tenant"])
@pytest.mark.parametrize("model", ["m", "sql"])
async def test_what_an_engine_says_of_a_chat_is_what_is_looked_for(bench: Bench, model: str, salt: str | None) -> None:
    ids = bench.ids(f"<|im_start|>user\n{TEXT}<|im_end|>\n<|im_start|>assistant\n")
    blocks = len(ids) // 4
    adapter = model if model == "sql" else None
    first = [key for key in (adapter, salt) if key]
    event = {
        "type": "BlockStored",
        "block_hashes": list(range(blocks)),
        "parent_block_hash": None,
        "token_ids": ids[: 4 * blocks],
        "block_size": 4,
        "lora_name": adapter,
        "medium": "GPU",
        "extra_keys": [first or None, *([[adapter] if adapter else None] * (blocks - 1))],
    }
    batch = decode(bytes(8), msgspec.msgpack.encode([0.0, [event], 0]))
    (told,) = CacheFollower("10.0.0.1:1", "", 4).take(batch)
    assert isinstance(told, BlocksStored)
    asked = await bench.of(chat(TEXT, model=model, **({"cache_salt": salt} if salt else {})))
    assert asked is not None
    assert told.hashes == asked.hashes


@pytest.mark.parametrize(
    "body",
    [
        completion(prompt=["a", "b"]),
        completion(prompt=[-1] * 8),
        chat([{"type": "text", "text": TEXT}, {"type": "image_url", "image_url": {"url": "http://x/y.png"}}]),
        ParsedBody("m", (TEXT,)),
    ],
)
async def test_a_prompt_whose_tokens_are_not_known_has_nothing_cached(bench: Bench, body: ParsedBody) -> None:
    assert await bench.of(body) == prefix.NONE


async def test_engines_that_do_not_tell_are_left_to_the_guess(bench: Bench) -> None:
    for body in (completion(model="o", prompt=TEXT), completion(model="nobody's", prompt=TEXT)):
        assert await bench.of(body) is None


async def test_without_a_template_chats_have_nothing_cached_which_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path, template=None)
    try:
        assert await bench.of(chat(TEXT)) == await bench.of(chat(TEXT)) == prefix.NONE
        assert await bench.of(completion(prompt=TEXT)) != prefix.NONE
    finally:
        bench.counter.close()
    assert [record.getMessage() for record in caplog.records] == ["no chat template"]


async def test_of_a_long_text_only_what_can_matter_is_encoded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_prefixes, "MAX_BLOCKS", 4)
    whole = of_token_ids(bench.ids(TEXT), 4, ("",)).hashes
    cut = await bench.of(completion(prompt=TEXT))
    assert cut is not None
    assert 4 <= len(cut.hashes) < len(whole)
    assert cut.hashes == whole[: len(cut.hashes)]
