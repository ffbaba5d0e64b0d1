"""
The commands: what a person may write, and which function carries it out.

Exit codes: 0 if all is well, 1 if ``routes --strict`` finds something, 2 if a command
cannot be carried out as it was written.

Longer than other modules, because each option of a command has a line.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.progress import Progress

from throttled_views.auditing import audit
from throttled_views.cli._clients import Client, checked_address, fields, pairs
from throttled_views.cli._compared import Compared
from throttled_views.cli._console import progress, warn
from throttled_views.cli._counts import Counts
from throttled_views.cli._loading import load
from throttled_views.cli._logs import read
from throttled_views.cli._mistakes import CommandError, telling_mistakes
from throttled_views.cli._options import (
    Address,
    AppDir,
    AsJson,
    Burst,
    Cost,
    Costing,
    Duration,
    Every,
    Factory,
    Handler,
    Headers,
    HeldTo,
    LimitName,
    Log,
    MaxDelay,
    PathParameters,
    Picture,
    Poisson,
    Principal,
    Quotas,
    Redis,
    Seed,
    Strict,
    Target,
)
from throttled_views.cli._patterns import Pattern, duration_us
from throttled_views.cli._plot import check_plot, plot
from throttled_views.cli._routes import faults_of, print_routes
from throttled_views.cli._standings import print_peeks, print_resets
from throttled_views.quotas import Quota
from throttled_views.simulation import Arrival

__all__ = ["app"]

_T = TypeVar("_T")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    # A traceback is shown as Python does, without the values of variables, which may
    # be secrets.
    pretty_exceptions_enable=False,
    help="See, reset and try out rate limits.",
)


@app.command()
@telling_mistakes()
def routes(
    target: Target,
    *,
    strict: Strict = False,
    as_json: AsJson = False,
    factory: Factory = False,
    app_dir: AppDir = Path(),
) -> None:
    """Show what each route is limited to, and which are not limited."""
    found = audit(load(target, factory=factory, app_dir=app_dir))
    print_routes(found, as_json=as_json)
    if strict and (faults := faults_of(found)):
        warn(faults)
        raise typer.Exit(1)


@app.command()
@telling_mistakes()
def peek(  # noqa: PLR0913 - each is an option
    target: Target,
    handler: Handler,
    principal: Principal = None,
    *,
    limit: LimitName = None,
    address: Address = None,
    header: Headers = None,
    path: PathParameters = None,
    quota: HeldTo = None,
    cost: Costing = None,
    redis: Redis = None,
    as_json: AsJson = False,
    factory: Factory = False,
    app_dir: AppDir = Path(),
) -> None:
    """Show where a client stands with a handler. Nothing is charged."""
    client = _client(principal, address, header, path)
    held_to = None if quota is None else Quota.parse(quota)
    loaded = load(target, factory=factory, app_dir=app_dir)
    counts = Counts(loaded, handler, client, limit, redis)
    print_peeks(_done(counts.peek(held_to, cost)), as_json=as_json)


@app.command()
@telling_mistakes()
def reset(  # noqa: PLR0913 - each is an option
    target: Target,
    handler: Handler,
    principal: Principal = None,
    *,
    limit: LimitName = None,
    address: Address = None,
    header: Headers = None,
    path: PathParameters = None,
    redis: Redis = None,
    as_json: AsJson = False,
    factory: Factory = False,
    app_dir: AppDir = Path(),
) -> None:
    """Forget what a client spent with a handler: it is as good as new."""
    client = _client(principal, address, header, path)
    loaded = load(target, factory=factory, app_dir=app_dir)
    counts = Counts(loaded, handler, client, limit, redis)
    print_resets(_done(counts.reset()), as_json=as_json)


def _done(work: Coroutine[Any, Any, _T]) -> _T:
    """Return what *work* does; what a key function prints is no result of a command."""
    with redirect_stdout(sys.stderr):
        return asyncio.run(work)


def _client(
    principal: str | None,
    address: str | None,
    header: Sequence[str] | None,
    path: Sequence[str] | None,
) -> Client:
    if principal is not None and (address or header or path):
        msg = "A client is either a PRINCIPAL or described by its requests. Give one"
        raise CommandError(msg)
    return Client(
        principal,
        checked_address(address),
        fields(header or ()),
        pairs(path or (), "=", "tenant_id=acme"),
    )


@app.command()
@telling_mistakes()
def simulate(  # noqa: PLR0913 - each is an option
    quotas: Quotas,
    log: Log = None,
    *,
    every: Every = None,
    burst: Burst = None,
    poisson: Poisson = None,
    duration: Duration = "10m",
    seed: Seed = 0,
    cost: Cost = 1,
    max_delay: MaxDelay = None,
    as_json: AsJson = False,
    picture: Picture = None,
) -> None:
    """Show what each algorithm admits, refuses and lets wait. Nothing is waited for."""
    if picture is not None:
        check_plot(picture)
    pattern = Pattern.of(every, burst, poisson, duration, seed)
    delay_us = 0 if max_delay is None else duration_us(max_delay)
    held_to = [Quota.parse(each) for each in quotas.split(";")]
    with progress() as bar:
        arrivals = _arrivals(log, pattern, cost, bar)
        compared = Compared.of(held_to, arrivals, delay_us, bar)
    compared.print(as_json=as_json)
    if picture is not None:
        plot(compared, picture)


def _arrivals(
    log: Path | None, pattern: Pattern | None, cost: int, bar: Progress
) -> list[Arrival]:
    if log is not None and pattern is None:
        arrivals = read(log, bar)
    elif pattern is not None and log is None:
        arrivals = pattern.arrivals()
    else:
        msg = (
            "How do requests arrive? Give one of a log, --every and --burst, or "
            "--poisson"
        )
        raise CommandError(msg)
    if cost == 1:
        return arrivals
    return [Arrival(at_us, key, cost) for at_us, key, _ in arrivals]
