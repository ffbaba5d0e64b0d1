"""Print the plan."""

import asyncio
from dataclasses import replace

from throttled_views import Quota

from .costs import MOST_TOGETHER, Costs, most_of_one_server, plan
from .keys import Traffic, reached

RATES = (1_000, 10_000, 100_000, 1_000_000)
TRAFFIC = Traffic()


def print_plans(costs: Costs) -> None:
    """Print what it takes, for each of the rates."""
    alone, together = (most_of_one_server(costs, each) for each in (1, MOST_TOGETHER))
    print(f"One server carries {alone:,.0f} decisions/s that come alone,")
    print(f"and {together:,.0f} that come {MOST_TOGETHER} in a call.\n")
    print("decisions/s  processes  in a call  one server  or primaries  bottleneck")
    for rate in RATES:
        it = plan(rate, costs)
        print(
            f"{it.rate:>11,}  {it.processes:>9}  {it.together:>9.1f}  "
            f"{it.busy:>10.0%}  {it.primaries:>12}  {it.bottleneck}"
        )


async def print_keys(quota: Quota) -> None:
    """Print what popular keys do, for some numbers of processes and primaries."""
    print(f"\n{TRAFFIC.rate:,} requests/s, {quota} for each client:\n")
    print("skew  processes  primaries  refused  of them local  busiest primary")
    for skew in (0.0, 1.0, 1.3):
        for processes, primaries in ((4, 3), (64, 3), (64, 12)):
            skewed = replace(TRAFFIC, skew=skew)
            it = await reached(skewed, quota, processes, primaries)
            local = it.local / it.refused if it.refused else 0
            print(
                f"{skew:>4}  {processes:>9}  {primaries:>9}  "
                f"{it.refused / it.requests:>7.0%}  {local:>13.0%}  "
                f"{it.busiest:>6.2f} x its share"
            )


if __name__ == "__main__":
    print_plans(Costs())
    asyncio.run(print_keys(Quota.per_second(10, burst=20)))
