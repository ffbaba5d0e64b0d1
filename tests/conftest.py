"""What pytest collects."""

import sys

collect_ignore: list[str] = []
if sys.version_info < (3, 12):
    # Its syntax does not compile here.
    collect_ignore.append("test_views_pep695.py")
