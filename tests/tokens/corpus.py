"""Texts of many kinds, made from a seed: what users send, and what breaks tokenizers."""

import base64
import json
import random

_WORDS = [
    "the",
    "model",
    "answers",
    "questions",
    "about",
    "latency",
    "and",
    "nobody",
    "waits",
    "any",
    "longer",
    "for",
    "it",
]
_RUSSIAN = ["быстрая", "коричневая", "лиса", "прыгает", "через", "ленивую", "собаку", "бежит", "дальше", "утром"]


def prose(chars: int, words: list[str] = _WORDS) -> str:
    rng = random.Random(chars)
    parts: list[str] = []
    size = 0
    while size < chars:
        parts.append(rng.choice(words) + rng.choice([" ", " ", " ", " ", ", ", ". ", ".\n\n"]))
        size += len(parts[-1])
    return "".join(parts)[:chars]


def russian(chars: int) -> str:
    return prose(chars, _RUSSIAN)


def chinese(chars: int) -> str:
    rng = random.Random(chars)
    return "".join(
        rng.choice("\uff0c\u3002") if rng.random() < 0.1 else chr(rng.randrange(0x4E00, 0x9000)) for _ in range(chars)
    )


def prices(chars: int) -> str:
    rng = random.Random(chars)
    rows = [{"id": at, "price": rng.random() * 100, "name": rng.choice(_WORDS)} for at in range(chars // 40 + 1)]
    return json.dumps(rows)[:chars]


def blob(chars: int) -> str:
    return base64.b64encode(random.Random(chars).randbytes(chars)).decode()[:chars]


def digits(chars: int) -> str:
    return "".join(random.Random(chars).choices("0123456789", k=chars))


def emoji(chars: int) -> str:
    return "".join(map(chr, random.Random(chars).choices(range(0x1F300, 0x1F600), k=chars)))


ORDINARY = {
    "prose": prose,
    "russian": russian,
    "chinese": chinese,
    "prices": prices,
    "base64": blob,
    "digits": digits,
    "emoji": emoji,
}

PATHOLOGICAL = {
    "a million spaces": " " * 1_000_000,
    "a million spaces and a word": " " * 1_000_000 + "end",
    "a million tabs": "\t" * 1_000_000,
    "a million line breaks": "\n" * 1_000_000,
    "a million times a": "a" * 1_000_000,
    "random letters": "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=1_000_000)),
    "special tokens": "<|endoftext|><|im_start|>" * 30_000,
    "lone surrogates": "\ud800x\udfff" * 100_000,
    "emoji": emoji(100_000),
    "base64": blob(1_000_000),
    "NUL": "\0" * 1_000_000,
}
