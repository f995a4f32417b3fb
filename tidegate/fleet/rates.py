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

PREFILL, DECODE = 0, 1
"""Which factor."""

SIGMA = 1.25
"""Standard deviations in a mean absolute one, where errors are normal: the root of pi / 2."""


class Scale:
    """One learned factor: the robust, forgetful mean of the logarithms of ratios."""

    __slots__ = ("_deviation", "_log", "_run", "_run_least", "samples")

    def __init__(self) -> None:
        """Start at 1, which nothing has confirmed."""
        self._log = 0.0
        self._deviation = TYPICAL_DEVIATION
        self._run = self._run_least = 0.0
        self.samples = 0.0

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

    def observe(self, ratio: float, weight: float) -> None:
        """Take in that something took ``ratio`` times as long as the prior says.

        Args:
            ratio: above 0; anything else, infinity included, is nonsense and changes nothing.
            weight: how much it says of this factor alone, 0 to 1.
        """
        if not 0.0 < ratio < math.inf or not 0.0 < weight <= 1.0:
            return
        off = max(-LARGEST_LOG, min(LARGEST_LOG, math.log(ratio))) - self._log
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

    def image(self) -> tuple[float, float, float]:
        """Return all of it as plain data."""
        return self._log, self._deviation, self.samples

    def restore(self, image: tuple[float, float, float]) -> None:
        """Become what ``image`` shows."""
        self._log, self._deviation, self.samples = image

    def doubt(self) -> None:
        """Go half of the way back to the prior, and let the next observations say the rest."""
        self._log /= 2
        self._deviation = TYPICAL_DEVIATION
        self.samples = min(self.samples, 1.0)


ScaleImage = tuple[float, float, float]
"""A scale as plain data: the logarithm of its factor, its typical deviation, its samples."""


class Rates:
    """The learned speed of one endpoint.

    Attributes:
        pace: how fast it is and what it holds, by all that is known; another object after every change.
        learned: its own factors, of prefill and of decoding.
    """

    __slots__ = ("_applied", "_kv_tokens", "_prior", "_settle", "_settled", "learned", "pace")

    def __init__(self, prior: Pace) -> None:
        self._prior = prior
        self.learned = (Scale(), Scale())
        self._applied = self._settled = (0.0, 0.0)
        self._settle: Callable[[], None] | None = None
        self._kv_tokens: float | None = None
        self.pace = prior

    @property
    def samples(self) -> tuple[float, float]:
        """How many observations of prefill and of decoding stand behind the pace, the latest few dozen alone."""
        return self.learned[0].samples, self.learned[1].samples

    def prefilled(self, ratio: float, weight: float) -> None:
        """Take in that prefill took ``ratio`` times as long as ``pace`` says; ``weight`` as in ``Scale.observe``."""
        self._observe(PREFILL, ratio, weight)

    def decoded(self, ratio: float, weight: float) -> None:
        """Likewise for the time between tokens."""
        self._observe(DECODE, ratio, weight)

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
        if prior != self._prior:
            self._prior = prior
            self.learned = (Scale(), Scale())
            self.settle()

    def join(self, settle: Callable[[], None]) -> None:
        """Have ``settle``, told of news, say from now on what counts of what is learned: it calls ``count``."""
        self._settle = settle

    def count(self, prefill: float, decode: float) -> bool:
        """Have these logarithms count as its factors; return whether that changes anything."""
        self._settled = (self.learned[0].log, self.learned[1].log)
        if (prefill, decode) == self._applied:
            return False
        self._applied = prefill, decode
        self._changed()
        return True

    def settle(self) -> None:
        """Have what was learned count, as far as its kin let it."""
        if self._settle is None:
            self.count(self.learned[0].log, self.learned[1].log)
        else:
            self._settle()

    def _observe(self, which: int, ratio: float, weight: float) -> None:
        scale, applied = self.learned[which], self._applied[which]
        scale.begin(applied)
        scale.observe(ratio * math.exp(applied), weight)
        # Who has seen much moves little, and need not ask each time what that comes to.
        if scale.samples < SURE_SAMPLES or abs(scale.log - self._settled[which]) > TELLING / 5:
            self.settle()

    def _changed(self) -> None:
        prior, prefill, decode = self._prior, math.exp(self._applied[PREFILL]), math.exp(self._applied[DECODE])
        self.pace = Pace(
            prior.prefill_seconds * prefill,
            prior.step_seconds * decode,
            prior.sequence_seconds * decode,
            prior.context_seconds * decode,
            prior.step_tokens,
            prior.max_batch,
            self._kv_tokens or prior.kv_tokens,
        )
