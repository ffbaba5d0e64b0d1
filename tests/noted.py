"""A hook that remembers what it is told."""

from throttled_views import CheckEvent, StoreStateEvent


class Notes:
    """A hook that remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[StoreStateEvent] = []
        self.checks: list[CheckEvent] = []

    def on_check(self, event: CheckEvent) -> None:
        """Remember *event*."""
        self.checks.append(event)

    def on_store_state(self, event: StoreStateEvent) -> None:
        """Remember *event*."""
        self.events.append(event)

    @property
    def outcomes(self) -> list[tuple[str, str, str]]:
        """The phase, name and outcome of each check."""
        return [(each.phase, each.limit.name, each.outcome) for each in self.checks]
