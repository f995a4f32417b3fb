"""What endpoints that were declared alike teach of one another.

The first endpoint of several that turns out faster than its prior says would get every request: the others are as fast,
but nobody has seen it. And of those that were seen, the one that was measured faster by chance would get all that one
engine can bear, for where little runs a request more costs less than such an error. So what was seen of one is what is
expected of its kin until they show otherwise, and who is not known to differ counts as equal. Who is known to be slower
gets few requests or none, so now and then one is sent as if it were as fast as the fastest of them (``Work.pace``).
"""

from collections.abc import Callable, Sequence

from tidegate.fleet.rates import DECODE, PREFILL, TELLING, Rates, Scale

DOUBT = 1.0
"""Standard errors that an endpoint is given before it counts as different."""

ONE_IN = 16
"""Many are gone through once for each sixteenth of them that saw something new: a few microseconds for each."""


class Kin:
    """Endpoints of one pool that were declared alike."""

    __slots__ = ("_changed", "_members", "_news", "_rivals")

    def __init__(
        self, members: Sequence[Rates], changed: Callable[[int], object] = int, *, rivals: bool = False
    ) -> None:
        """Have ``members`` be one another's kin from now on.

        ``changed`` is told the place of each whose pace has become another. With ``rivals`` there are others that get
        the requests which these do not get.
        """
        self._members = tuple(members)
        self._rivals = rivals
        self._changed = changed
        self._news = 0
        for member in self._members:
            member.join(self.hear)
        self.settle()

    def hear(self) -> None:
        """Take in that one of them saw something new."""
        self._news += 1
        if self._news * ONE_IN >= len(self._members):
            self.settle()

    def settle(self) -> None:
        """Have count of each what can be told of it."""
        self._news = 0
        prefill = alike([member.learned[PREFILL] for member in self._members])
        decode = alike([member.learned[DECODE] for member in self._members])
        hope = min(prefill, default=0.0), min(decode, default=0.0)
        if self._rivals and len(self._members) == 1:
            hope = min(hope[0], 0.0), min(hope[1], 0.0)  # of one without kin, what its prior says
        for place, member in enumerate(self._members):
            if member.count(prefill[place], decode[place], hope):
                self._changed(place)


def alike(scales: Sequence[Scale]) -> list[float]:
    """Return the logarithm of the factor that counts for each of ``scales``.

    From the smallest to the largest, each joins those before it unless it is further from their mean than ``TELLING``,
    and than its error allows; who is together has the mean, weighed by samples. Of whom nothing was seen counts as
    most do.
    """
    seen = sorted((scale.log, place) for place, scale in enumerate(scales) if scale.samples)
    if not seen:
        # What was known of some before they were away is still the best guess, of all of them.
        return [min((scale.log for scale in scales if scale.log), default=0.0)] * len(scales)
    counts = [0.0] * len(scales)
    groups: list[list[int]] = []
    means: list[float] = []
    weight = 0.0
    for log, place in seen:
        scale = scales[place]
        if not groups or log - means[-1] > max(TELLING, DOUBT * scale.error):
            groups.append([])
            means.append(0.0)
            weight = 0.0
        groups[-1].append(place)
        weight += scale.samples
        means[-1] += (log - means[-1]) * scale.samples / weight
    for group, mean in zip(groups, means, strict=True):
        for place in group:
            counts[place] = mean
    # The first of the largest: where as many are fast as slow, it is soon seen whether it is fast.
    most = means[max(range(len(groups)), key=lambda at: len(groups[at]))]
    for place, scale in enumerate(scales):
        if not scale.samples:
            counts[place] = most
    return counts
