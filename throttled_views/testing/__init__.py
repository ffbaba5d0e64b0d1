"""
What tests of an application, or of a store of your own, need.

Nothing here imports pytest, and nothing is loaded unless you import it. The fixtures
are in `throttled_views.testing.fixtures`, which does.
"""

from __future__ import annotations

from throttled_views.testing._clock import ManualClock
from throttled_views.testing._contract import StoreContract
from throttled_views.testing._lifting import no_limits
from throttled_views.testing._responses import assert_throttled

__all__ = ["ManualClock", "StoreContract", "assert_throttled", "no_limits"]
