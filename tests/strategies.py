"""What hypothesis draws from."""

from datetime import timedelta

from hypothesis import strategies as st

from throttled_views import Quota

UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
MONTH_US = 30 * UNITS_US["d"]
CENTURY_US = 36_525 * UNITS_US["d"]
MOST_UNITS = 10**12


@st.composite
def quotas(draw: st.DrawFn) -> Quota:
    """Draw quotas from 1 in 30 days to millions in a microsecond, with any burst."""
    limit = draw(st.integers(1, 20) | st.integers(1, 2_000_000))
    period_us = draw(
        st.sampled_from(list(UNITS_US.values()))
        | st.integers(1, 100)
        | st.integers(1, MONTH_US)
    )
    most = min(MOST_UNITS, limit * CENTURY_US // period_us)
    burst = draw(
        st.none() | st.integers(1, min(most, 20)) | st.integers(1, most), label="burst"
    )
    return Quota(limit, timedelta(microseconds=period_us), burst=burst)
