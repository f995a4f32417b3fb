"""How fast one endpoint turned out to be, beside what was expected of it.

Two factors on the prior are learned: one for prefill, one for decoding, each from the ratios of observed to expected
times. That takes few samples, and leaves the shape of the prior (how a step grows with the batch) as it is. What counts
of a factor in the end is what its kin make of it (``kin``).
"""

import math
from collections.abc import Callable

from tidegate.fleet.gpu import Pace

PRIOR_SAMPLES = 2.0
"""How many observations a prior weighs as much as: few, for a prior may be wrong by a factor."""

MOST_SAMPLES = 40.0
"""How many observations are remembered, about: an endpoint that changes its speed is believed after as many."""

TYPICAL_DEVIATION = 0.5
"""How far off, as the logarithm of a ratio, a single observation is before any was seen: a factor of 1.6."""

OUTLIER = 2.0
"""An observation that is further off than this many typical deviations counts as if it were just so far off."""

CHANGED = 3.0
"""Observations in a row, by their weight, that are further off than that, to one side, are no outliers: it works at
another speed now, and is believed to be off by the least of them. Outliers that are a tenth of all look like that once
in a few thousand, and as many more set it right."""

LARGEST_LOG = math.log(1000.0)
"""No endpoint is a thousand times faster or slower than its prior: such a figure is a broken clock."""

TELLING = 0.1
"""Logarithms of factors that are no further apart are not told apart: what is learned of equal engines varies so."""

SURE_SAMPLES = 10.0
"""With fewer samples every one of them moves a factor by much."""

STALE_SECONDS = 60.0
"""What was seen so long ago is in doubt: who is thought slow gets no requests, and could never show otherwise."""

PREFILL, DECODE = 0, 1
"""Which factor."""

SIGMA = 1.25
"""Standard deviations in a mean absolute one, where errors are normal: the root of pi / 2."""


class Scale:
    """One learned factor: the robust, forgetful mean of the logarithms of ratios.

    Attributes:
        samples: how many stand behind it.
        seen_at: when it was seen last, in seconds.
    """

    __slots__ = ("_deviation", "_log", "_run", "_run_least", "samples", "seen_at")

    def __init__(self) -> None:
        """Start at 1, which nothing has confirmed."""
        self._log = 0.0
        self._deviation = TYPICAL_DEVIATION
        self._run = self._run_least = 0.0
        self.samples, self.seen_at = 0.0, -math.inf

    @property
    def value(self) -> float:
        """The factor."""
        return math.exp(self._log)

    @property
    def log(self) -> float:
        """Its logarithm."""
        return self._log

    @property
    def error(self) -> float:
        """How far off that may be: its standard error; infinite before anything was seen."""
        return SIGMA * self._deviation / math.sqrt(self.samples) if self.samples else math.inf

    def begin(self, log: float) -> None:
        """Start at the factor of this logarithm instead, if nothing was seen yet."""
        if not self.samples:
            self._log = log

    def observe(self, ratio: float, weight: float, now: float = 0.0, hope: float | None = None) -> None:
        """Take in that something took ``ratio`` times as long as the prior says.

        Args:
            ratio: above 0; anything else, infinity included, is nonsense and changes nothing.
            weight: how much it says of this factor alone, 0 to 1.
            now: the moment, in seconds.
            hope: the logarithm of the factor that it may have by now. Whether what was learned, where that is stale, or
                this is nearer to what is seen decides where the next begin.
        """
        if not 0.0 < ratio < math.inf or not 0.0 < weight <= 1.0:
            return
        log = max(-LARGEST_LOG, min(LARGEST_LOG, math.log(ratio)))
        if hope is not None and now - self.seen_at >= STALE_SECONDS and abs(log - hope) < abs(log - self._log):
            self._log = hope
            self.forget()
        self.seen_at = now
        off = log - self._log
        bound = OUTLIER * self._deviation
        if self._has_changed(off, bound, weight):
            self._log += self._run_least
            self.samples, self._run = min(self.samples, CHANGED), 0.0
            return
        # What is always far off is no outlier: the bound follows, but one observation cannot tear it open.
        self._deviation += 0.1 * weight * (min(abs(off), 4 * self._deviation) - self._deviation)
        self._deviation = max(0.05, self._deviation)
        self.samples = min(MOST_SAMPLES, self.samples + weight)
        self._log += weight / (PRIOR_SAMPLES + self.samples) * max(-bound, min(bound, off))

    def _has_changed(self, off: float, bound: float, weight: float) -> bool:
        """Return whether with an observation that is ``off`` by so much there are enough beyond ``bound`` in a row."""
        if abs(off) <= bound:
            self._run = 0.0
            return False
        if self._run and off * self._run_least > 0.0:
            self._run += weight
            self._run_least = min(off, self._run_least, key=abs)
        else:
            self._run, self._run_least = weight, off
        return self._run >= CHANGED

    def image(self) -> tuple[float, float, float, float]:
        """Return all of it as plain data."""
        return self._log, self._deviation, self.samples, self.seen_at

    def restore(self, image: tuple[float, float, float, float]) -> None:
        """Become what ``image`` shows."""
        self._log, self._deviation, self.samples, self.seen_at = image

    def doubt(self) -> None:
        """Go half of the way back to the prior, and let the next observations say the rest."""
        self._log /= 2
        self.forget()

    def forget(self) -> None:
        """Begin anew at this factor, as if nothing had confirmed it."""
        self._deviation, self._run, self.samples = TYPICAL_DEVIATION, 0.0, 0.0


ScaleImage = tuple[float, float, float, float]
"""A scale as plain data: the logarithm of its factor, its typical deviation, its samples, when it was seen last."""


class Rates:
    """The learned speed of one endpoint.

    Attributes:
        pace: how fast it is and what it holds, by all that is known; another object after every change.
        learned: its own factors, of prefill and of decoding.
        prior: what is expected of it.
    """

    __slots__ = ("_applied", "_hope", "_hoped", "_kv_tokens", "_settle", "_settled", "learned", "pace", "prior")

    def __init__(self, prior: Pace) -> None:
        self.prior = prior
        self.learned = (Scale(), Scale())
        self._applied = self._settled = self._hope = (0.0, 0.0)
        self._hoped: Pace | None = None
        self._settle: Callable[[], None] | None = None
        self._kv_tokens: float | None = None
        self.pace = prior

    @property
    def samples(self) -> tuple[float, float]:
        """How many observations of prefill and of decoding stand behind the pace, the latest few dozen alone."""
        return self.learned[0].samples, self.learned[1].samples

    @property
    def hoped(self) -> Pace:
        """How fast it may be if what was learned of it is no longer true: as the fastest of its kin."""
        if self._hoped is None:
            self._hoped = self._at(*self._hope)
        return self._hoped

    def prefilled(self, ratio: float, weight: float, now: float = 0.0) -> None:
        """Take in that prefill took ``ratio`` times as long as ``pace`` says; the others as in ``Scale.observe``."""
        self._observe(PREFILL, ratio, weight, now)

    def decoded(self, ratio: float, weight: float, now: float = 0.0) -> None:
        """Likewise for the time between tokens."""
        self._observe(DECODE, ratio, weight, now)

    def holds(self, kv_tokens: float | None) -> None:
        """Take in the size of its KV cache in tokens, as it says itself; ``None`` is unknown."""
        if kv_tokens and kv_tokens != self._kv_tokens:
            self._kv_tokens = kv_tokens
            self._changed()

    def doubt(self) -> None:
        """Trust what was learned less: it is another process now, perhaps of another model."""
        for scale in self.learned:
            scale.doubt()
        self.settle()

    def forget(self) -> None:
        """Have what was learned count for nothing until it is seen anew: it was away, and may be another by now."""
        for scale in self.learned:
            scale.forget()
        self.settle()

    def image(self) -> tuple[ScaleImage, ScaleImage]:
        """Return what was learned of prefill and of decoding, as plain data."""
        return self.learned[0].image(), self.learned[1].image()

    def restore(self, image: tuple[ScaleImage, ScaleImage], kv_tokens: float | None) -> None:
        """Know what ``image`` says; ``kv_tokens`` is the size of the KV cache, as in ``holds``."""
        for scale, known in zip(self.learned, image, strict=True):
            scale.restore(known)
        self._kv_tokens = kv_tokens or self._kv_tokens
        self._changed()
        self.settle()

    def expect(self, prior: Pace) -> None:
        """Take over another prior: another GPU was declared, and what was learned belongs to the old one."""
        if prior != self.prior:
            self.prior = prior
            self.learned = (Scale(), Scale())
            self.settle()

    def join(self, settle: Callable[[], None]) -> None:
        """Have ``settle``, told of news, say from now on what counts of what is learned: it calls ``count``."""
        self._settle = settle

    def count(self, prefill: float, decode: float, hope: tuple[float, float] | None = None) -> bool:
        """Have these logarithms count as its factors; return whether that changes anything.

        ``hope`` are those that it may have if what was learned of it is no longer true; the same ones by default.
        """
        self._settled = (self.learned[0].log, self.learned[1].log)
        counts = prefill, decode
        hope = counts if hope is None else hope
        if counts == self._applied and hope == self._hope:
            return False
        self._applied, self._hope = counts, hope
        self._changed()
        return True

    def settle(self) -> None:
        """Have what was learned count, as far as its kin let it."""
        if self._settle is None:
            self.count(self.learned[0].log, self.learned[1].log)
        else:
            self._settle()

    def _observe(self, which: int, ratio: float, weight: float, now: float) -> None:
        scale, applied = self.learned[which], self._applied[which]
        scale.begin(applied)
        scale.observe(ratio * math.exp(applied), weight, now, self._hope[which])
        # Who has seen much moves little, and need not ask each time what that comes to.
        if scale.samples < SURE_SAMPLES or abs(scale.log - self._settled[which]) > TELLING / 5:
            self.settle()

    def _changed(self) -> None:
        self.pace, self._hoped = self._at(*self._applied), None

    def _at(self, prefill_log: float, decode_log: float) -> Pace:
        prior, prefill, decode = self.prior, math.exp(prefill_log), math.exp(decode_log)
        return Pace(
            prior.prefill_seconds * prefill,
            prior.step_seconds * decode,
            prior.sequence_seconds * decode,
            prior.context_seconds * decode,
            prior.step_tokens,
            prior.max_batch,
            self._kv_tokens or prior.kv_tokens,
        )
