"""What may be written after a command, and what it means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Address",
    "AppDir",
    "AsJson",
    "Burst",
    "Cost",
    "Costing",
    "Duration",
    "Every",
    "Factory",
    "Handler",
    "Headers",
    "HeldTo",
    "LimitName",
    "Log",
    "MaxDelay",
    "PathParameters",
    "Picture",
    "Poisson",
    "Principal",
    "Quotas",
    "Redis",
    "Seed",
    "Strict",
    "Target",
]

Target = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="The application, such as main:app.")
]
Factory = Annotated[
    bool, typer.Option("--factory", help="It is a function that makes the application.")
]
AppDir = Annotated[
    Path,
    typer.Option(help="Where modules are looked for first.", show_default="here"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Handler = Annotated[
    str,
    typer.Argument(
        help="Class.handler, function, or 'GET /path'; APP for what limits all of it."
    ),
]
Principal = Annotated[
    str | None,
    typer.Argument(help="The client, as the key function names it, or its address."),
]
LimitName = Annotated[
    str | None, typer.Option("--limit", help="Only the limit of this name.")
]
Address = Annotated[str | None, typer.Option(help="The address of the client.")]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header", "-H", metavar="NAME: VALUE", help="A field that it sends. Repeat."
    ),
]
PathParameters = Annotated[
    list[str] | None,
    typer.Option("--path", metavar="NAME=VALUE", help="A path parameter. Repeat."),
]
Redis = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where the counts are, if not as the app says."),
]

Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Exit with 1 if a route is unlimited, or has a problem."
    ),
]
HeldTo = Annotated[
    str | None,
    typer.Option("--quota", help="What it is held to, where a function chooses that."),
]
Costing = Annotated[
    int | None,
    typer.Option(
        "--cost", min=0, help="What a request costs, where a function tells that."
    ),
]
Quotas = Annotated[
    str,
    typer.Argument(
        metavar="QUOTAS", help="What to limit to: '100/m burst 20', '1/s; 100/h'."
    ),
]
Log = Annotated[
    Path | None,
    typer.Argument(
        metavar="[LOG]",
        help="Times, one a line, or an access log; - is standard input.",
    ),
]
Every = Annotated[
    str | None, typer.Option(metavar="TIME", help="Requests come that far apart.")
]
Burst = Annotated[int | None, typer.Option(min=1, help="So many of them come at once.")]
Poisson = Annotated[
    str | None, typer.Option(metavar="RATE", help="They come at random: 20/s.")
]
Duration = Annotated[
    str, typer.Option("--for", metavar="TIME", help="They come for that long.")
]
Seed = Annotated[int, typer.Option(help="Another one is another chance.")]
Cost = Annotated[int, typer.Option(min=1, help="Units that each of them costs.")]
MaxDelay = Annotated[
    str | None, typer.Option(metavar="TIME", help="How long one may wait its turn.")
]
Picture = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw it, to an .svg or a .png."),
]
