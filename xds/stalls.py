"""Streams that bring nothing but comments for too long, and how Envoy ends them.

A dead engine's frontend may go on sending keep-alive comments (``: ping``); they are bytes, so that no timeout of
Envoy's ever passes. Its Lua program, which sees each piece of a stream anyway, counts for how long nothing else came.
Then it puts an error in place of the comment, in the form of the API that was asked for, holds back all that comes
after it, and so lets Envoy's own timeout break off the stream of a client that does not leave by itself.

Lua can neither end a stream nor wait for a time. But what an engine sends while the program waits for an answer is
kept, and the route's timer, which only what is passed on restarts, runs on (measured with 1.40: an emptied piece
restarts it, a piece that is kept does not). So it asks what never answers: gRPC's health service, to be told of changes
(``Watch``).

It has a wall clock alone. So no pause between two comments counts for more than half of the time: a clock that is set
an hour forward does not end a stream that was well.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from xds.names import DECISION_NAMESPACE, ENDING_NAMESPACE, HOLD_CLUSTER

MESSAGE: Final = "The answer was broken off: the engine brought nothing more of it for too long."

CODE: Final = "stalled"

HELD_MILLISECONDS: Final = 86_400_000
"""How long it waits at most; Envoy's timeout comes before that."""


def _data(event: Mapping[str, object]) -> str:
    return f"data: {json.dumps(event)}\n\n"


_DETAILS: Final = {"message": MESSAGE, "type": "server_error", "param": None, "code": CODE}

FAREWELLS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # OpenAI's clients raise an error for any event with ``error``; vLLM, too, ends the stream in order after it.
        "": f"{_data({'error': _DETAILS})}data: [DONE]\n\n",
        "messages": "event: error\n" + _data({"type": "error", "error": {"type": "timeout_error", "message": MESSAGE}}),
        "responses": "event: error\n" + _data({"type": "error", "code": CODE, "message": MESSAGE, "param": None}),
    }
)
"""The last event of a stream, by API; ``""`` is for all that are not named. Two line ends come before it, for a comment
and an event that had begun."""

_PROGRAM = """
local STILL, MOST = %(still)d, %(most)d -- milliseconds
local FAREWELLS = {%(farewells)s}
local AT_START, IN_COMMENT, IN_LINE = 0, 1, 2

local function begin_watch()
  return {open = AT_START, since = nil, passed = 0, over = false}
end

local function nothing_but(text) -- whether whole lines are comments, Anthropic's pings, or empty
  text = "\\n" .. string.gsub(text, "\\r", "\\n")
  text = string.gsub(text, "\\n:[^\\n]*", "")
  text = string.gsub(text, "\\nevent: ?ping\\n+data:[^\\n]*", "")
  return not string.find(text, "[^\\n]")
end

local function silent(watch, text) -- whether a piece brings nothing but that
  if watch.open == IN_LINE then return text == "" end
  if watch.open == IN_COMMENT then return nothing_but(string.match(text, "[\\r\\n].*") or "") end
  local first = string.byte(text, 1)
  if first == 58 or first == 10 or first == 13 or not first then return nothing_but(text) end
  return first == 101 and string.find(text, "^event: ?ping[\\r\\n]") ~= nil and nothing_but(text)
end

local function left_open(watch, text) -- where the piece ended
  local last = string.byte(text, -1)
  if not last then return watch.open end
  if last == 10 or last == 13 then return AT_START end
  local line = string.match(text, "[\\r\\n]([^\\r\\n]+)$")
  if not line and watch.open ~= AT_START then return watch.open end
  return string.byte(line or text, 1) == 58 and IN_COMMENT or IN_LINE
end

local function stands_still(handle, watch, text)
  if watch.over then return true end
  local quiet = silent(watch, text)
  watch.open = left_open(watch, text)
  if not quiet then
    watch.since = nil
    return false
  end
  local now = handle:timestamp()
  if watch.since then
    watch.passed = watch.passed + math.max(0, math.min(now - watch.since, MOST))
  else
    watch.passed = 0
  end
  watch.since = now
  return watch.passed >= STILL
end

local function break_off(handle, watch, chunk)
  if not watch.over then
    watch.over = true
    note(handle, "stalled", "true")
    local decision = handle:streamInfo():dynamicMetadata():get("%(decision)s")
    chunk:setBytes("\\n\\n" .. (FAREWELLS[decision and decision["api"]] or FAREWELLS[""]))
    return
  end
  chunk:setBytes("")
  handle:httpCall("%(cluster)s", {
    [":method"] = "POST", [":path"] = "/grpc.health.v1.Health/Watch", [":authority"] = "tidegate",
    ["content-type"] = "application/grpc", ["te"] = "trailers",
  }, "\\0\\0\\0\\0\\0", %(held)d)
end
"""


def program(still_seconds: float) -> str:
    """Return the functions ``begin_watch``, ``stands_still`` and ``break_off``, in Lua; they need ``note``.

    Args:
        still_seconds: for how long a stream may bring nothing but comments.
    """
    still = max(1, round(still_seconds * 1000))
    farewells = ", ".join(f"[{_quoted(api)}] = {_quoted(text)}" for api, text in FAREWELLS.items())
    return _PROGRAM % {
        "still": still,
        "most": max(1, still // 2),
        "farewells": farewells,
        "decision": DECISION_NAMESPACE,
        "namespace": ENDING_NAMESPACE,
        "cluster": HOLD_CLUSTER,
        "held": HELD_MILLISECONDS,
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
