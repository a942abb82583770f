"""`report.html` of a run: one self-contained page, without scripts or anything from outside.

A person should see at a glance what happened; whoever wants to know more finds the evidence, the
fetch rounds, the plots, and the command that repeats the run. What is in it is decided in `page`.
"""

from __future__ import annotations

import functools
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import jinja2

from neaptide.results.report.closeup import close_up
from neaptide.results.report.diagram import draw
from neaptide.results.report.mermaid import sequence_diagram
from neaptide.results.report.page import PLOTS, drawing_of, lifelines, moments_of, page_of
from neaptide.results.report.rows import load
from neaptide.results.report.story import Story
from neaptide.results.store import write_text
from neaptide.results.visible import visible

REPORT_FILE: Final = "report.html"


def write_report(run_directory: Path) -> Path:
    """Writes the report of a run. Raises RunUnreadableError or StoreError."""
    data = load(run_directory)
    wanted = [plot for plot in PLOTS if plot.is_in_report(data) and plot.is_there(data)]
    plots = [svg for plot in wanted if (svg := plot.draw(data))]
    page = environment().get_template("report.html").render(**page_of(data, plots))
    path = run_directory / REPORT_FILE
    write_text(path, page)
    return path


def diagram_of(run_directory: Path) -> str:
    """The fetch-round diagram alone, as SVG text."""
    return draw(drawing_of(load(run_directory)))


def templates_directory() -> Path:
    return Path(str(files("neaptide.results.report") / "templates"))


def _shown(value: Any) -> Any:
    """What a template puts in, but for what is HTML already."""
    return visible(value) if type(value) is str else value


@functools.cache
def environment() -> jinja2.Environment:
    """One for the process: to compile the template takes longer than to fill it in."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_directory()),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def mermaid_of(run_directory: Path) -> str:
    """The fetch rounds that matter as a Mermaid sequence diagram. Raises RunUnreadableError."""
    data = load(run_directory)
    found = close_up(data) if data.run.kind == "random" else None
    if found is None:
        moments = moments_of(data)
    else:
        moments = Story(data.names, found.partition).in_order(found.operations, found.rounds)
    return sequence_diagram(moments, lifelines(data))
