"""What `throttled_views.simulation` takes for a million arrivals."""

from __future__ import annotations

import random
from time import process_time

from tests.benchmarks.measuring import Effort
from tests.benchmarks.results import Row, Section, Table
from throttled_views import Quota
from throttled_views.simulation import Arrival, compare

_KEYS = 100
_MEAN_US = 10_000  # between two arrivals


def measure(effort: Effort) -> Section:
    """Measure all algorithms together."""
    chance = random.Random(1)  # the same arrivals each time
    at_us, arrivals = 0, list[Arrival]()
    for number in range(effort.largest):
        at_us += int(chance.expovariate(1 / _MEAN_US))
        arrivals.append(Arrival(at_us, f"client-{number % _KEYS}"))
    began = process_time()
    compare([Quota.per_minute(50, burst=20)], arrivals)
    row = Row("all algorithms", round(process_time() - began, 2), target=10)
    title = f"`simulate` of {effort.largest:,} arrivals, time of the processor"
    return Section([Table(title, [row], "s")])
