"""A language model of random weights as a GGUF file that llama.cpp loads: a quarter of a megabyte.

Nothing is downloaded: the vocabulary is one token per byte, a few merges and the three ChatML markers. The weights are
random but for one thing: the first channel of the residual stream is constant, and the output layer reads it as a bias.
So the model only ever says lower-case letters and spaces, and never ends on its own: a request gets exactly the number
of tokens it asked for. Whoever wants a slower engine asks for a larger ``Shape``. Run as a script it writes one file:
``python gguf_model.py PATH``.
"""

import string
import sys
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers

NAME = "tiny-llama"
CONTEXT = 32_768  # tokens
MERGES = ("t h", "th e", "i n", "a n", "an d", "Ġ t", "Ġt h", "Ġth e", "o u", "h e", "e r", "l l")
END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


class Shape(NamedTuple):
    """How large a model is.

    Attributes:
        embedding: channels of the residual stream.
        heads: of attention; they share one head of keys and values.
        feed_forward: channels inside a feed-forward layer.
        blocks: layers.
    """

    embedding: int = 64
    heads: int = 2
    feed_forward: int = 128
    blocks: int = 2


TINY = Shape()


def byte_symbols() -> list[str]:
    """Return the printable character that stands for each byte, as in GPT-2's byte-level BPE (``Ġ`` is a space)."""
    own = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in own]
    symbol = {byte: chr(byte) for byte in own} | {byte: chr(256 + at) for at, byte in enumerate(others)}
    return [symbol[byte] for byte in range(256)]


def vocabulary() -> tuple[list[str], list[int]]:
    """Return the tokens and the type of each: bytes, merges, then the markers."""
    plain = byte_symbols() + [merge.replace(" ", "") for merge in MERGES]
    markers = [END, START, STOP]
    types = [gguf.TokenType.NORMAL] * len(plain) + [gguf.TokenType.CONTROL] * len(markers)
    return plain + markers, [int(kind) for kind in types]


def weights(seed: int, tokens: list[str], shape: Shape = TINY) -> dict[str, NDArray[np.float32] | NDArray[np.float16]]:
    """Return the tensors by llama.cpp's names, each of shape (out, in), drawn from ``seed``."""
    rng = np.random.default_rng(seed)
    width, inner, head = shape.embedding, shape.feed_forward, shape.embedding // shape.heads

    def drawn(rows: int, columns: int, *, silent_first: bool = False) -> NDArray[np.float16]:
        tensor = rng.normal(0.0, 0.2, (rows, columns)).astype(np.float16)
        if silent_first:  # what is added to the residual stream leaves its first channel alone
            tensor[0] = 0
        return tensor

    ones = np.ones(width, dtype=np.float32)
    embedding = drawn(len(tokens), width)
    embedding[:, 0] = 4
    output = drawn(len(tokens), width)
    sayable = set(string.ascii_lowercase) | {"Ġ"}
    output[:, 0] = [0 if set(token) <= sayable else -100 for token in tokens]
    tensors: dict[str, NDArray[np.float32] | NDArray[np.float16]] = {
        "token_embd.weight": embedding,
        "output_norm.weight": ones,
        "output.weight": output,
    }
    for block in range(shape.blocks):
        tensors |= {
            f"blk.{block}.attn_norm.weight": ones,
            f"blk.{block}.attn_q.weight": drawn(width, width),
            f"blk.{block}.attn_k.weight": drawn(head, width),
            f"blk.{block}.attn_v.weight": drawn(head, width),
            f"blk.{block}.attn_output.weight": drawn(width, width, silent_first=True),
            f"blk.{block}.ffn_norm.weight": ones,
            f"blk.{block}.ffn_gate.weight": drawn(inner, width),
            f"blk.{block}.ffn_up.weight": drawn(inner, width),
            f"blk.{block}.ffn_down.weight": drawn(width, inner, silent_first=True),
        }
    return tensors


def write(path: Path, seed: int, shape: Shape = TINY) -> None:
    """Write the model to ``path``; equal seeds give equal files."""
    tokens, types = vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(NAME)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.embedding)
    writer.add_block_count(shape.blocks)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(shape.embedding // shape.heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(tokens.index(END))
    writer.add_eos_token_id(tokens.index(STOP))
    writer.add_pad_token_id(tokens.index(END))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in weights(seed, tokens, shape).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_tokenizer(path: Path) -> None:
    """Write the model's tokenizer to ``path``, as its publisher would have."""
    tokens, _ = vocabulary()
    merges = [(first, second) for first, second in (merge.split(" ") for merge in MERGES)]
    model = models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(path))


if __name__ == "__main__":
    write(Path(sys.argv[1]), seed=0)
