"""How many places stay free for whoever is more important and has yet to come.

A request that finds all places taken waits until one becomes free, however important it is. So where important ones
are asked for, the others leave some places to them. How many follows from three rates that are learned: with F places
becoming free a second while the fleet is full, and the important coming H a second, they are together at rho = H / F
of them. Beyond the point where the others stop, only they take places, so of R free places all are taken rho^R of the
time, and whoever comes then waits for longer than t with a chance of e^-(F - H)t (the M/M/c queue with a threshold for
the lower class: Schaack and Larson 1986, "An N-server cutoff priority queue"). So

    R = (ln LATE + (F - H) SOON) / ln rho

places let all but ``LATE`` of them go within ``SOON``: none in a large fleet, where some place becomes free all the
time, and none for those who hardly ever ask. What this costs are about R - rho / (1 - rho) places that stand empty,
whatever the size of the fleet: too much of a small one, so a share of all places bounds it.
"""

import math

LATE = 0.01
"""The share of the important that may wait for longer: their 99th percentile is what is looked at."""

SOON = 0.1
"""Seconds of waiting that do not matter beside the time that a first token takes anyway."""


def places_to_keep(higher: float, freed: float, most: float) -> int:
    """Return how many places to keep free.

    Args:
        higher: requests a second of those for whom.
        freed: places that become free a second while the fleet is full, 0 if that is not known.
        most: how many at the most.
    """
    if higher <= 0 or freed <= 0 or most < 1:
        return 0
    if higher >= freed:
        return int(most)
    wanted = (math.log(LATE) + (freed - higher) * SOON) / math.log(higher / freed)
    return max(0, min(int(most), math.ceil(wanted)))
