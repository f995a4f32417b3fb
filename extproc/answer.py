"""One answer on its way to the client: what it cost and how it went, read while it is passed on.

It is given the answer's bytes in whatever pieces they come, and gives back the bytes to pass on: all of them, or all
but the event that the client did not ask for. Whatever the pieces, the result is the same. It keeps at most one event
of a stream, or one JSON answer, each up to a bound; what is larger is passed on unread.
"""

import zlib
from typing import Final

from extproc import reported, sse
from extproc.reported import Tokens

MAX_JSON_BYTES: Final = 10_485_760
"""The largest JSON answer that is read. Vectors for hundreds of texts have that size."""

BYTES_PER_TOKEN: Final = 4.0
"""What stands for a token where nothing better is known: English text, by most vocabularies."""

_DONE: Final = b"[DONE]"
_INFLATED_AT_ONCE: Final = 65_536
_MAX_RATIO: Final = 200


class Answer:
    """What has been seen of one answer.

    Attributes:
        tokens: what the engine counted.
        streamed: the answer is a stream of events.
        failed: it says that the request failed, whatever its status was.
        finished: it says why the output ended.
        ended: its end was seen: ``[DONE]``, or the last event of a form that has one, or all of a JSON answer.
        first_token_at: when the first text of a stream came, or the first byte of another answer; ``None`` before that.
        text_bytes: the output in UTF-8 bytes, as far as it was read, and so passed on.
        text_events: events that brought text; most engines send one for each token.
        bytes: bytes of the body that came in.
        withheld: events that were not passed on.
        unread: something was not read: too large, compressed in a way that is not read, or not JSON.
    """

    __slots__ = (
        "_error_named",
        "_inflater",
        "_json",
        "_last_passed",
        "_max_json",
        "_parser",
        "_withhold",
        "bytes",
        "ended",
        "failed",
        "finished",
        "first_token_at",
        "streamed",
        "text_bytes",
        "text_events",
        "tokens",
        "unread",
        "withheld",
    )

    def __init__(
        self,
        content_type: str,
        content_encoding: str = "",
        *,
        withhold: bool = False,
        max_event_bytes: int = sse.MAX_EVENT_BYTES,
        max_json_bytes: int = MAX_JSON_BYTES,
    ) -> None:
        """Read an answer with these headers.

        Args:
            content_type: its ``content-type``; empty when it has none.
            content_encoding: its ``content-encoding``, likewise. Of the codings gzip and deflate are read.
            withhold: keep back the event that is there for its usage alone. In a compressed answer nothing is.
            max_event_bytes: the largest event of a stream that is read.
            max_json_bytes: the largest JSON answer that is read.
        """
        kind = content_type.partition(";")[0].strip().lower()
        codings = [coding for part in content_encoding.split(",") if (coding := part.strip().lower()) != "identity"]
        compressed = any(codings)
        self._inflater = zlib.decompressobj(32 + zlib.MAX_WBITS) if codings in _INFLATED else None
        readable = not compressed or self._inflater is not None
        self.streamed = kind == "text/event-stream"
        self._parser = sse.Parser(max_event_bytes) if self.streamed and readable else None
        of_json = readable and not self.streamed and (kind == "application/json" or kind.endswith("+json"))
        self._json = bytearray() if of_json else None
        self._max_json = max_json_bytes
        self._withhold = withhold and not compressed
        self._last_passed = True
        self._error_named = False
        self.tokens = Tokens()
        self.failed = self.finished = self.ended = False
        self.first_token_at: float | None = None
        self.text_bytes = self.text_events = self.bytes = self.withheld = 0
        self.unread = not readable

    def feed(self, chunk: bytes, now: float) -> bytes:
        """Take in the next bytes of the body, at ``now`` in seconds; return what is to be passed on now."""
        self.bytes += len(chunk)
        if chunk and not self.streamed and self.first_token_at is None:
            self.first_token_at = now
        if self._inflater is not None:
            self._inflate(chunk, now)
            return chunk
        return self._take(chunk, now)

    def end(self, now: float) -> bytes:
        """Take in that the body has ended, well or not; return what is still to be passed on."""
        rest = b""
        if self._parser is not None:
            passed = self._sort(self._parser.end(), now)
            rest = b"" if self._inflater is not None else passed
            self.unread |= self._parser.passed_over > 0
        elif self._json:
            self._read_json()
        self._parser = self._json = self._inflater = None
        return rest

    def estimated_completion_tokens(self, bytes_per_token: float = BYTES_PER_TOKEN) -> int:
        """Return an estimate of the output, in tokens, from what was passed on.

        It is the larger of two: one by size, and the events that brought text, of which each had a token at least. Of
        an answer whose text could not be read, all the bytes count: too many rather than none.
        """
        size = self.text_bytes if self.text_bytes or not self.unread else self.bytes
        return max(self.text_events, round(size / bytes_per_token), int(size > 0))

    def _take(self, chunk: bytes, now: float) -> bytes:
        if self._parser is not None:
            pieces = self._parser.feed(chunk)
            if self._withhold:
                return self._sort(pieces, now)
            for piece in pieces:
                if piece.event is not None:
                    self._event(piece.event, now)
        elif self._json is not None:
            self._json += chunk
            if len(self._json) > self._max_json:
                self._json, self.unread = None, True
        return chunk

    def _sort(self, pieces: list[sse.Piece], now: float) -> bytes:
        """Read the events of ``pieces``; return the bytes of those that are passed on."""
        passed = []
        for piece in pieces:
            if not piece.continues:
                alone = piece.event is not None and self._event(piece.event, now)
                self._last_passed = not (alone and self._withhold)
                self.withheld += not self._last_passed
            if self._last_passed:
                passed.append(piece.raw)
        return b"".join(passed) if self._withhold else b""

    def _event(self, event: sse.Event, now: float) -> bool:
        """Read one event; return whether it is there for its usage alone."""
        data = event.data.strip()
        if data == _DONE:
            self.ended = True
            return False
        report = reported.read(data)
        if event.name == b"error":
            self.failed = True
        if report is None:
            self.unread = True
            return False
        text = report.text_bytes
        if report.cumulative:
            text = max(0, text - self.text_bytes)
        if text:
            self.text_events += 1
            if self.first_token_at is None:
                self.first_token_at = now
        self._add(report, text)
        return report.usage_alone

    def _read_json(self) -> None:
        report = reported.read(self._json or b"")
        if report is None:
            self.unread = True
            return
        self._add(report, report.text_bytes)
        self.finished = self.ended = True

    def _add(self, report: reported.Report, text: int) -> None:
        self.text_bytes += text
        self.tokens = self.tokens.then(report.tokens)
        self.failed |= report.failed
        self.finished |= report.finished
        self.ended |= report.ended

    def _inflate(self, chunk: bytes, now: float) -> None:
        """Read what ``chunk`` holds, slice by slice; give up where it is no such coding, or a bomb."""
        inflater, rest = self._inflater, chunk
        most = 1 + len(chunk) * _MAX_RATIO // _INFLATED_AT_ONCE
        try:
            while inflater is not None and not inflater.eof:
                plain = inflater.decompress(rest, _INFLATED_AT_ONCE)
                self._take(plain, now)
                rest, most = inflater.unconsumed_tail, most - 1
                if not rest and len(plain) < _INFLATED_AT_ONCE:
                    return
                if most < 0:
                    break
            if inflater is not None and inflater.eof:
                return
        except zlib.error:
            pass
        self._parser = self._json = self._inflater = None
        self.unread = True


_INFLATED: Final = (["gzip"], ["x-gzip"], ["deflate"])
