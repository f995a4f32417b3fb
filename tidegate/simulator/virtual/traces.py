"""Public traces of LLM traffic, in the four formats that are in use.

==========  =====================================================================================================
format      what it is
==========  =====================================================================================================
azure       Azure/AzurePublicDataset, CSV: TIMESTAMP, ContextTokens, GeneratedTokens
mooncake    kvcache-ai/Mooncake, JSON lines: timestamp (ms), input_length, output_length, hash_ids (512 tokens each)
burstgpt    HPMLL/BurstGPT, CSV: Timestamp (s), Model, Request tokens, Response tokens, Total tokens, Log Type
bailian     Alibaba's Qwen-Bailian, JSON lines: chat_id, parent_chat_id, timestamp (s), input_length, output_length,
            type, turn, hash_ids (16 tokens each)
==========  =====================================================================================================

Equal hash ids mean an equal prefix up to the end of their block, so they are the keys of the engines' caches as they
are. A request without a token of answer did not succeed (BurstGPT has such) and is left out; one without a prompt too.
"""

import csv
import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tidegate.simulator.virtual.workload import Arrival, Workload

MOONCAKE_BLOCK_TOKENS = 512
BAILIAN_BLOCK_TOKENS = 16


class TraceError(ValueError):
    """A trace cannot be read: one line that says which, where and what was expected."""


def read(path: Path) -> Workload:
    """Read a trace, whatever its format; requests come out in the order of their time, the first at 0.

    Raises:
        TraceError: it is of no known format, a line of it is broken, or no request is in it.
        OSError: it cannot be read.
    """
    with path.open(encoding="utf-8-sig", newline="") as lines:
        try:
            arrivals = [one for one in _rows(lines) if one.prompt_tokens > 0 and one.output_tokens > 0]
        except TraceError as error:
            raise TraceError(f"{path}: {error}") from None
        except UnicodeDecodeError:
            raise TraceError(f"{path}: not UTF-8 text") from None
    if not arrivals:
        raise TraceError(f"{path}: no request with a prompt and an answer is in it")
    arrivals.sort(key=lambda one: one.at)
    return Workload(path.stem, arrivals).part(0, 1)


def _rows(lines: Iterator[str]) -> Iterator[Arrival]:
    first = next(lines, "")
    if first.lstrip().startswith("{"):
        yield from _json_rows(first, lines)
        return
    titles = [title.strip() for title in first.split(",")]
    parse = next((parse for wanted, parse in _CSV if set(wanted) <= set(titles)), None)
    if parse is None:
        raise TraceError("no known format; expected Azure's or BurstGPT's CSV, or Mooncake's or Bailian's JSON lines")
    for number, row in enumerate(csv.DictReader(lines, titles), 2):
        yield _parsed(parse, row, number)


def _json_rows(first: str, lines: Iterator[str]) -> Iterator[Arrival]:
    def every() -> Iterator[str]:
        yield first
        yield from lines

    for number, line in enumerate(every(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            raise TraceError(f"line {number}: not JSON") from None
        if not isinstance(row, dict):
            raise TraceError(f"line {number}: not a JSON object")
        yield _parsed(_bailian if "chat_id" in row else _mooncake, row, number)


def _parsed(parse: Callable[[Mapping[str, Any]], Arrival], row: Mapping[str, Any], number: int) -> Arrival:
    try:
        return parse(row)
    except KeyError as error:
        raise TraceError(f"line {number}: no {error.args[0]}") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise TraceError(f"line {number}: {error}") from None


def _azure(row: Mapping[str, Any]) -> Arrival:
    # Seven digits of a second; datetime takes six.
    when = dt.datetime.fromisoformat(row["TIMESTAMP"].strip()[:26]).replace(tzinfo=dt.UTC)
    return Arrival(when.timestamp(), int(row["ContextTokens"]), int(row["GeneratedTokens"]))


def _burstgpt(row: Mapping[str, Any]) -> Arrival:
    session = row.get("Session ID") or ""
    at, prompt, answer = float(row["Timestamp"]), row["Request tokens"], row["Response tokens"]
    return Arrival(at, int(prompt), int(answer), session=session.strip())


def _mooncake(row: Mapping[str, Any]) -> Arrival:
    return _with_blocks(row, float(row["timestamp"]) / 1000, MOONCAKE_BLOCK_TOKENS)


def _bailian(row: Mapping[str, Any]) -> Arrival:
    parent = row.get("parent_chat_id", -1)
    return _with_blocks(
        row, float(row["timestamp"]), BAILIAN_BLOCK_TOKENS, str(row["chat_id"] if parent in {-1, None} else parent)
    )


def _with_blocks(row: Mapping[str, Any], at: float, block_tokens: int, session: str = "") -> Arrival:
    prompt = int(row["input_length"])
    ids = row.get("hash_ids") or ()
    # The last id may stand for a block that is not full, which no engine keeps.
    blocks = tuple(int(one) for one in ids[: max(prompt, 0) // block_tokens])
    return Arrival(at, prompt, int(row["output_length"]), blocks, block_tokens, session)


_CSV = (
    (("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _azure),
    (("Timestamp", "Request tokens", "Response tokens"), _burstgpt),
)
