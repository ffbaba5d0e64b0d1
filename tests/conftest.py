"""What pytest collects, and the fixtures of all tests."""

import sys

import pytest
from hypothesis import HealthCheck, settings

from throttled_views import MemoryStore

# Before it is imported, so that a broken promise shows its values.
pytest.register_assert_rewrite("throttled_views.testing")

from tests.clock import ManualClock  # noqa: E402 - see above

collect_ignore: list[str] = []
if sys.version_info < (3, 12):
    # Its syntax does not compile here.
    collect_ignore.append("test_views_pep695.py")

# The same examples in every run, however slow the machine is. To look for new ones, run
# `pytest --hypothesis-profile search`.
settings.register_profile(
    "steady",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# For the further Pythons and FastAPIs of .ci/run.
settings.register_profile("quick", settings.get_profile("steady"), max_examples=25)
settings.register_profile("search", max_examples=5_000, deadline=None)
settings.load_profile("steady")


@pytest.fixture(name="clock")
def clock_fixture() -> ManualClock:
    """Give a clock that stands at zero."""
    return ManualClock()


@pytest.fixture(name="store")
def store_fixture(clock: ManualClock) -> MemoryStore:
    """Give an empty memory store that goes by *clock*."""
    return MemoryStore(clock=clock)
