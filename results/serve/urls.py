"""Where everything is. No other module, and no template, puts a URL together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

HOME: Final = "/"
LIVE: Final = "/live"
MATRIX: Final = "/matrix"
NIGHTS: Final = "/nights"
ALL_NIGHTS: Final = "/nights/index.html"  # its links to runs are relative
COMPARE: Final = "/compare"
STATIC: Final = "/static"


def _part(text: str) -> str:
    return quote(text, safe="")


def home(**filters: str) -> str:
    """The table of runs, with what is asked of it; what is empty is left out."""
    asked = {name: value for name, value in filters.items() if value}
    return f"{HOME}?{urlencode(asked)}" if asked else HOME


def run(name: str) -> str:
    return f"/runs/{_part(name)}"


def run_live(name: str, state: str) -> str:
    """`state`: what the page shows; the stream ends when it is another."""
    return f"{run(name)}/live?{urlencode({'state': state})}"


def run_zip(name: str) -> str:
    return f"{run(name)}/zip"


def run_plot(name: str, plot: str) -> str:
    return f"{run(name)}/plots/{_part(plot)}"


def run_file(name: str, file: str) -> str:
    return f"{run(name)}/files/{_part(file)}"


def run_rounds(name: str, record: str, partition: int) -> str:
    return f"{run(name)}/rounds?{urlencode({'record': record, 'partition': partition})}"


def run_logs(name: str, **asked: str) -> str:
    return f"{run(name)}/logs" + (f"?{urlencode(asked)}" if asked else "")


def compare(first: str, second: str) -> str:
    return f"{COMPARE}?{urlencode([('run', first), ('run', second)])}"


def night(name: str, file: str) -> str:
    return f"{NIGHTS}/{_part(name)}/{_part(file)}"


def static(name: str) -> str:
    return f"{STATIC}/{_part(name)}"


def functions() -> Mapping[str, object]:
    """For templates."""
    return {
        "home": home,
        "run": run,
        "run_live": run_live,
        "run_zip": run_zip,
        "run_plot": run_plot,
        "run_file": run_file,
        "run_logs": run_logs,
        "compare": compare,
        "night": night,
        "static": static,
        "MATRIX": MATRIX,
        "NIGHTS": NIGHTS,
        "ALL_NIGHTS": ALL_NIGHTS,
        "COMPARE": COMPARE,
        "HOME": HOME,
        "LIVE": LIVE,
    }
