"""These tests need the packages of requirements.txt, which no extra brings."""

from importlib.util import find_spec

PACKAGES = ("fastapi_limiter", "fastapi_utils", "slowapi", "throttled")

collect_ignore_glob = (
    [] if all(find_spec(package) for package in PACKAGES) else ["test_*.py"]
)
