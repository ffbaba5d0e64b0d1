"""What a decision costs, and what that comes to at a rate of them."""

from dataclasses import dataclass
from math import ceil

US_PER_S = 1_000_000
MOST_TOGETHER = 32  # decisions in one call of the script, as `RedisStore` sends them
CONNECTIONS = 2  # of a process, for its calls


@dataclass(frozen=True, slots=True)
class Costs:
    """
    What was measured: see "What limits cost" in the documentation.

    Attributes:
        request_us: Microseconds of a core of the application for a request that does
            nothing but to ask for its limit.
        alone_us: Microseconds of the core of a server for a decision that comes alone.
        together_us: The same for one of 32 that come in one call.
        round_trip_us: Microseconds from a call until its answer.
        usable: The share of a core that is planned with. Queues grow beyond it.
    """

    request_us: float = 130.0
    alone_us: float = 40.0
    together_us: float = 6.0
    round_trip_us: float = 250.0
    usable: float = 0.7

    @property
    def decision_us(self) -> float:
        """The part of a call that each decision in it adds."""
        calls = MOST_TOGETHER * self.together_us - self.alone_us
        return calls / (MOST_TOGETHER - 1)

    @property
    def call_us(self) -> float:
        """The part of a call that is there once: the network, and to begin a script."""
        return self.alone_us - self.decision_us

    def server_us(self, together: float) -> float:
        """Return what a decision costs a server, of so many in one call."""
        return self.call_us / together + self.decision_us


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What it takes to make *rate* decisions in a second.

    Attributes:
        rate: Decisions in a second.
        processes: Processes of the application, of one core each.
        together: Decisions in a call to a server that has all keys.
        busy: How busy that server would be; above 1 it cannot.
        primaries: Primaries of a cluster, to which decisions come one by one.
        bottleneck: What gives out first as the rate grows.
    """

    rate: float
    processes: int
    together: float
    busy: float
    primaries: int
    bottleneck: str


def plan(rate: float, costs: Costs) -> Plan:
    """Return what it takes to make *rate* decisions in a second."""
    processes = _cores(rate * costs.request_us, costs)
    # What arrives while the connections of a process wait is the next call.
    calls = CONNECTIONS * US_PER_S / costs.round_trip_us
    together = min(MOST_TOGETHER, max(1.0, rate / processes / calls))
    busy = rate * costs.server_us(together) / US_PER_S
    if busy > costs.usable:
        bottleneck = "one server"
    elif processes > 1:
        bottleneck = "the application"
    else:
        bottleneck = "nothing"
    primaries = _cores(rate * costs.alone_us, costs)
    return Plan(rate, processes, together, busy, primaries, bottleneck)


def most_of_one_server(costs: Costs, together: float) -> float:
    """Return the decisions in a second that one server carries."""
    return costs.usable * US_PER_S / costs.server_us(together)


def _cores(us_per_s: float, costs: Costs) -> int:
    return ceil(us_per_s / US_PER_S / costs.usable)
