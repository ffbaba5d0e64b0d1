"""
The smallest application: one view, one quota.

Run it, then send more than five requests in a row::

    pip install -e ".[demo]" && python examples/quickstart.py
"""

import argparse
from collections.abc import Sequence

from fastapi import FastAPI

from throttled_views import Quota, ThrottledView

HOST = "127.0.0.1"


class Hello(ThrottledView):
    """Greets five times at once, then once every two seconds."""

    path = "/hello"
    throttle = Quota.per_minute(30, burst=5)

    async def get(self) -> dict[str, str]:
        """Greet."""
        return {"message": "Hello!"}


app = FastAPI(title="throttled_views quickstart")
app.include_router(Hello.as_router())


def main(argv: Sequence[str] | None = None) -> None:
    """Serve the application until it is interrupted."""
    parser = argparse.ArgumentParser(description="Serve one throttled view.")
    parser.add_argument("--port", type=int, default=8000, help="default: 8000")
    port: int = parser.parse_args(argv).port

    try:
        import uvicorn
    except ModuleNotFoundError:
        msg = 'uvicorn is not installed. Install it with: pip install -e ".[demo]"'
        raise SystemExit(msg) from None

    url = f"http://{HOST}:{port}/hello"
    print(f"Serving {url} (stop with Ctrl+C)")
    print(f"Try this six times in a row: curl -i {url}", flush=True)
    uvicorn.run(app, host=HOST, port=port)


if __name__ == "__main__":
    main()
