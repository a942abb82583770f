"""Routes: what is asked, which page answers, and how an answer looks on the wire.

Pages are read and drawn on threads; only the streams of runs that go on live on the event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import jinja2
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from neaptide.results.durations import duration
from neaptide.results.errors import NeaptideError, RunNotFoundError, RunUnreadableError
from neaptide.results.report import environment as report_environment
from neaptide.results.report import templates_directory
from neaptide.results.serve import guard, inside, nights, urls
from neaptide.results.serve.listing import NIGHTS_FOLDER, Asked
from neaptide.results.serve.live import Follower
from neaptide.results.serve.pages import (
    WORD_SIGNS,
    NotServed,
    Pages,
    UnreadableRunError,
    WrongQuestionError,
)
from neaptide.results.serve.zipping import zipped

LOOK_S: Final = 1.0
_KEEP_ALIVE_S: Final = 15.0
_TYPES: Final = {".html": "text/html", ".json": "application/json"}
_STATUS: Final[tuple[tuple[type[Exception], int], ...]] = (
    (RunNotFoundError, 404),
    (inside.RefusedLinkError, 403),
    (WrongQuestionError, 400),
    (UnreadableRunError, 422),
    (RunUnreadableError, 422),
    (NeaptideError, 500),
)


def create_app(
    runs: Path,
    *,
    names: Collection[str] = ("localhost",),
    any_address: bool = False,
    not_served: NotServed = lambda runs: {},
    nights: Path | None = None,
    stopping: asyncio.Event | None = None,
) -> Starlette:
    """The application that shows a directory of runs.

    `names`, `any_address`: the hosts by which it may be asked for (`guard.is_ours`). `not_served`:
    scenario and system to what the system lacks. `nights`: where campaigns are; None: `nights`
    among the runs. `stopping`: is set when the server ends, so that streams end too.
    """
    of_nights = (nights or runs / NIGHTS_FOLDER).absolute()
    views = _Views(Pages(runs.resolve(), not_served), of_nights, stopping or asyncio.Event())
    app = Starlette(
        routes=[
            Route(urls.HOME, views.home),
            Route(urls.LIVE, views.live),
            Route(urls.MATRIX, views.matrix),
            Route(urls.COMPARE, _of_runs(views.compare)),
            Route(urls.NIGHTS, views.nights),
            Route(urls.ALL_NIGHTS, views.all_nights),
            Route(f"{urls.NIGHTS}/{{night}}/{{file}}", views.night),
            Route("/runs/{run}", _of_runs(views.run)),
            Route("/runs/{run}/live", views.run_live),
            Route("/runs/{run}/logs", _of_runs(views.logs)),
            Route("/runs/{run}/rounds", _of_runs(views.rounds)),
            Route("/runs/{run}/zip", views.zip),
            Route("/runs/{run}/plots/{plot}", _of_runs(views.plot)),
            # A file of logs/ has a slash in its name.
            Route("/runs/{run}/files/{file:path}", views.file),
            # Where the page of all nights, and a matrix that lies beside the runs, lead to.
            Route("/runs/{run}/report.html", views.beside),
            Route("/{run}/report.html", views.beside),
            Route("/style.css", views.style),
            Mount(urls.STATIC, StaticFiles(directory=_folder("static"))),
        ],
        middleware=[Middleware(guard.Guard, names=names, any_address=any_address)],
        exception_handlers={NeaptideError: views.problem, HTTPException: views.problem},
    )
    app.router.redirect_slashes = False  # nothing is guessed of a path
    return app


def _of_runs(view: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """A page that is made of what runs have: whatever is wrong there, the page says so."""

    def shown(request: Request) -> Response:
        try:
            return view(request)
        except (NeaptideError, HTTPException):
            raise
        except Exception as error:
            kind = type(error).__name__
            raise UnreadableRunError(f"What is recorded cannot be shown ({kind}).") from error

    return shown


def _folder(name: str) -> Path:
    return Path(str(files("neaptide.results.serve") / name))


class _Views:
    """One method for each route. Synchronous ones run on threads."""

    def __init__(self, pages: Pages, nights: Path, stopping: asyncio.Event) -> None:
        self._pages = pages
        self._nights = nights
        self._stopping = stopping
        own = jinja2.FileSystemLoader([_folder("templates"), templates_directory()])
        self._environment = report_environment().overlay(loader=own)
        self._environment.globals = {**self._environment.globals, "url": urls.functions()}

    def _page(self, template: str, values: dict[str, Any], status: int = 200) -> HTMLResponse:
        text = self._environment.get_template(template).render(values)
        return HTMLResponse(text, status)

    # --- pages -----------------------------------------------------------------------------------

    def home(self, request: Request) -> Response:
        asked = Asked(**{n: request.query_params.get(n, "").strip() for n in _ASKED})
        values = self._pages.home(asked)
        if request.query_params.get("as") == "json":
            rows = values["rows"]
            shown = [one.to_json() for one in rows.shown]
            document = {"runs": shown, "matching": rows.matching, "after": rows.more}
            return Response(json.dumps(document), media_type="application/json")  # ASCII alone
        here = {k: v for k, v in asdict(asked).items() if k != "after"}
        return self._page("home.html", {**values, "here": here})

    def run(self, request: Request) -> Response:
        return self._page("run.html", self._pages.run(request.path_params["run"]))

    def rounds(self, request: Request) -> Response:
        record = request.query_params.get("record", "")
        partition = _number(request, "partition", int)
        values = self._pages.rounds(request.path_params["run"], record, partition or 0)
        return self._page("rounds.html", values)

    def logs(self, request: Request) -> Response:
        wanted = request.query_params.getlist("log")
        since_s = _number(request, "since", float)
        values = self._pages.logs(request.path_params["run"], wanted, since_s)
        return self._page("logs.html", values)

    def compare(self, request: Request) -> Response:
        return self._page("compare.html", self._pages.compare(request.query_params.getlist("run")))

    def matrix(self, request: Request) -> Response:
        return self._page("matrix_page.html", self._pages.matrix())

    def nights(self, request: Request) -> Response:
        values = {
            "nights": nights.nights(self._nights),
            "has_page": nights.page_of_all(self._nights) is not None,
            "runs": {one.name for one in self._pages.listing.runs()},
            "signs": WORD_SIGNS,
            "duration": duration,
        }
        return self._page("nights.html", values)

    # --- files -----------------------------------------------------------------------------------

    def night(self, request: Request) -> Response:
        name, file = request.path_params["night"], request.path_params["file"]
        for one in nights.nights(self._nights):
            if one.name == name and file in one.files:
                return _stored(one.files[file], nights.FILES[file])
        raise RunNotFoundError(f"There is no {file!r} of a night {name!r}.")

    def all_nights(self, request: Request) -> Response:
        page = nights.page_of_all(self._nights)
        if page is None:
            raise RunNotFoundError("There is no page of nights yet.")
        return _stored(page, "text/html; charset=utf-8")

    def file(self, request: Request) -> Response:
        path = self._pages.file(request.path_params["run"], request.path_params["file"])
        return _stored(path, _TYPES.get(path.suffix, "text/plain; charset=utf-8"))

    def beside(self, request: Request) -> Response:
        found = self._pages.listing.find(request.path_params["run"])
        return RedirectResponse(urls.run(found.name))

    def plot(self, request: Request) -> Response:
        svg = self._pages.plot(request.path_params["run"], request.path_params["plot"])
        headers = {"Content-Security-Policy": guard.PICTURE}
        return Response(svg, headers=headers, media_type="image/svg+xml")

    def zip(self, request: Request) -> Response:
        found = self._pages.listing.find(request.path_params["run"])
        pieces = zipped(found.name, inside.all_files(found.directory))
        headers = {"Content-Disposition": f'attachment; filename="{_plain_name(found.name)}.zip"'}
        return StreamingResponse(pieces, headers=headers, media_type="application/zip")

    def style(self, request: Request) -> Response:
        return FileResponse(templates_directory() / "style.css", media_type="text/css")

    def problem(self, request: Request, error: Exception) -> Response:
        """One sentence, in the page that it belongs to."""
        if isinstance(error, HTTPException):
            status, why = error.status_code, f"There is nothing at {request.url.path}."
        else:
            status = next(status for kind, status in _STATUS if isinstance(error, kind))
            why = str(error)
        return self._page("problem.html", {"why": why, "status": status}, status)

    # --- streams ---------------------------------------------------------------------------------

    async def live(self, request: Request) -> Response:
        """Says whenever a run comes, or comes to something else."""
        mark = await run_in_threadpool(self._pages.listing.mark)

        async def events() -> AsyncIterator[str]:
            last = mark
            async for _ in self._looks():
                now = await run_in_threadpool(self._pages.listing.mark)
                yield _event("changed", "") if now != last else ""
                last = now

        return _stream(events())

    async def run_live(self, request: Request) -> Response:
        """How far a run is; `over` when its state is not what the page shows (any more), which is
        the end of the stream."""
        found = await run_in_threadpool(self._pages.listing.find, request.path_params["run"])
        await run_in_threadpool(inside.refuse_links_out, found.directory)
        follower = Follower(found.directory)
        shown_state = request.query_params.get("state", found.state)
        template = self._environment.get_template("progress.html")

        async def events() -> AsyncIterator[str]:
            shown = ""
            async for _ in self._looks():
                progress = await run_in_threadpool(follower.look)
                html = template.render(progress=progress)
                yield _event("progress", html) if html != shown else ""
                shown = html
                if progress.state != shown_state:
                    yield _event("over", "")
                    return

        return _stream(events())

    async def _looks(self) -> AsyncIterator[None]:
        """Again and again, until the server ends."""
        while not self._stopping.is_set():
            yield
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._stopping.wait()
            except TimeoutError:
                continue


_ASKED: Final = ("verdict", "outcome", "system", "workload", "fault", "search", "after")


def _number(request: Request, name: str, kind: Callable[[str], Any]) -> Any:
    """None where it is not asked. Raises WrongQuestionError."""
    text = request.query_params.get(name, "")
    if not text:
        return None
    try:
        number = kind(text)
    except ValueError:
        raise WrongQuestionError(f"{name}={text!r} must be a number.") from None
    if not -1e12 < number < 1e12:
        raise WrongQuestionError(f"{name}={text!r} is no number that a run has.")
    return number


def _plain_name(name: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in name)


def _stored(path: Path, kind: str) -> Response:
    """A file as it is; a page among them may do nothing but be looked at."""
    source = inside.open_plain(path)

    def pieces() -> Any:
        with source:
            while chunk := source.read(256 * 1024):
                yield chunk

    headers = {"Content-Security-Policy": guard.STORED_PAGE}
    return StreamingResponse(pieces(), headers=headers, media_type=kind)


def _event(name: str, html: str) -> str:
    lines = "".join(f"data: {line}\n" for line in (html.splitlines() or [""]))
    return f"event: {name}\n{lines}\n"


async def _with_signs_of_life(events: AsyncIterator[str]) -> AsyncIterator[str]:
    """A comment now and then, so that a client that has gone is found out."""
    silent_s = 0.0
    async for event in events:
        silent_s = 0.0 if event else silent_s + LOOK_S
        if silent_s >= _KEEP_ALIVE_S:
            event, silent_s = ": still here\n\n", 0.0
        if event:
            yield event


def _stream(events: AsyncIterator[str]) -> Response:
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(
        _with_signs_of_life(events), headers=headers, media_type="text/event-stream"
    )
