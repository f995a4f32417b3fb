from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.e2e.llamacpp import gguf_model


def test_every_byte_has_a_printable_symbol_of_its_own() -> None:
    symbols = gguf_model.byte_symbols()
    assert len(set(symbols)) == 256
    assert all(symbol.isprintable() and not symbol.isspace() for symbol in symbols)
    assert symbols[ord("a")] == "a"
    assert symbols[ord(" ")] == "Ġ"


def test_a_merge_joins_tokens_that_exist_before_it() -> None:
    tokens, _ = gguf_model.vocabulary()
    for merge in gguf_model.MERGES:
        left, right = merge.split(" ")
        joined = tokens.index(left + right)
        assert tokens.index(left) < joined
        assert tokens.index(right) < joined


def test_only_the_markers_are_control_tokens() -> None:
    tokens, types = gguf_model.vocabulary()
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == gguf.TokenType.CONTROL]
    assert control == [gguf_model.END, gguf_model.START, gguf_model.STOP]


def test_equal_seeds_give_equal_files_and_others_do_not(tmp_path: Path) -> None:
    for name, seed in (("one", 7), ("again", 7), ("other", 8)):
        gguf_model.write(tmp_path / name, seed)
    one, again, other = ((tmp_path / name).read_bytes() for name in ("one", "again", "other"))
    assert one == again
    assert one != other
    assert len(one) < 5_000_000


@pytest.mark.parametrize("seed", [0, 1])
def test_the_first_channel_is_constant_and_lets_only_letters_pass(seed: int) -> None:
    tokens, _ = gguf_model.vocabulary()
    tensors = gguf_model.weights(seed, tokens)
    assert np.unique(tensors["token_embd.weight"][:, 0]).size == 1
    for block in range(gguf_model.TINY.blocks):
        assert not tensors[f"blk.{block}.attn_output.weight"][0].any()
        assert not tensors[f"blk.{block}.ffn_down.weight"][0].any()
    sayable = [token for token, row in zip(tokens, tensors["output.weight"], strict=True) if row[0] == 0]
    assert "the" in sayable
    assert not set(sayable) & {"A", "7", "Ċ", gguf_model.END, gguf_model.STOP}


def test_the_file_says_what_the_reader_needs(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    gguf_model.write(path, seed=0)
    reader = gguf.GGUFReader(path)
    tokens, _ = gguf_model.vocabulary()
    assert len(reader.fields["tokenizer.ggml.tokens"].data) == len(tokens)
    names = {tensor.name for tensor in reader.tensors}
    assert names == set(gguf_model.weights(0, tokens))
