"""The pages in a real browser: with scripts and without, wide and narrow, by pointer and by key.

All of it is one browser and one server; NEAPTIDE_PICTURES names a directory for what it sees.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from PIL import Image
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Locator,
    Page,
    expect,
    sync_playwright,
)

from neaptide.results.serve import app as served
from tests.proof import proof_but
from tests.results.losing_run import write_losing_run, write_verdict
from tests.serve.conftest import serving
from tests.serve.stored import (
    GOING_ON,
    HELD,
    LOST,
    Stored,
    end,
    go_on,
    write_store,
)

pytestmark = [pytest.mark.live, pytest.mark.needs("chromium")]

PAGES: Final = {
    "home": "/",
    "run": f"/runs/{LOST}",
    "going-on": f"/runs/{GOING_ON}",
    "logs": f"/runs/{LOST}/logs",
    "rounds": f"/runs/{LOST}/rounds?record=m2&partition=0",
    "compare": f"/compare?run={LOST}&run={HELD}",
    "matrix": "/matrix",
    "nights": "/nights",
}
# The least contrast of text in a page, by WCAG 2: text on the nearest ground behind it.
CONTRAST: Final = """
() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => v / 255)
      .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0.99) return c;
    }
    return [255, 255, 255];
  };
  let least = [99, ""];
  for (const e of document.querySelectorAll("body *")) {
    if (e.closest("svg, noscript, .skip, .hidden")) continue;
    const own = [...e.childNodes].filter((n) => n.nodeType === 3 && n.data.trim());
    if (!own.length || !e.getClientRects().length) continue;
    const a = light(rgb(getComputedStyle(e).color)), b = light(ground(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least[0]) least = [ratio, own[0].data.trim()];
  }
  return least;
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        expect.set_options(timeout=30_000)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return write_store(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def address(runs: Stored) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served, "LOOK_S", 0.1)
        with serving(runs.root) as port:
            yield f"http://127.0.0.1:{port}"


class Visit:
    """A context of the browser, and what its pages complained of or asked elsewhere."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        self.address = address
        self.context: BrowserContext = browser.new_context(base_url=address, **options)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self._asked)
        self.page.on("response", self._answered)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:")):
            self.problems.append(f"asked elsewhere: {request.url}")

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.problems.append(f"{response.status}: {response.url}")

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def picture(page: Page, name: str) -> None:
    directory = os.environ.get("NEAPTIDE_PICTURES")
    if directory:
        page.screenshot(path=str(Path(directory) / f"{name}.png"), full_page=True)


@pytest.mark.parametrize(
    ("width", "scheme"),
    proof_but(
        [(1280, "light"), (390, "light"), (1280, "dark"), (390, "dark")],
        *[(1280, "light"), (390, "dark")],
    ),
)
def test_every_page_fits_is_readable_and_complains_of_nothing(
    browser: Browser, address: str, width: int, scheme: Any
) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with Visit(browser, address, **options) as visit:
        for name, url in PAGES.items():
            visit.page.goto(url)
            for image in visit.page.locator("img").all():
                image.scroll_into_view_if_needed()
                expect(image).to_have_js_property("complete", True)
                assert image.evaluate("e => e.naturalWidth") > 0
            sizes = "() => [document.documentElement.scrollWidth, innerWidth]"
            assert visit.page.evaluate(sizes) == [width, width], name
            contrast, text = visit.page.evaluate(CONTRAST)
            assert contrast >= 4.5, (name, text)
            picture(visit.page, f"{name}-{width}-{scheme}")
        assert visit.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "is_cut"), [(390, True), (1280, False)])
def test_what_is_cut_has_a_sign_that_it_scrolls(
    browser: Browser, address: str, width: int, is_cut: bool, scheme: Any
) -> None:
    """A shadow at the right edge, until it is scrolled to its end; none where nothing is cut."""
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with Visit(browser, address, **options) as visit:
        for name in ("run", "matrix", "logs"):
            visit.page.goto(PAGES[name])
            wide = visit.page.locator(".wide").first
            assert wide.evaluate("e => e.scrollWidth > e.clientWidth") == is_cut, name
            before = right_edge(wide)
            wide.evaluate("e => { e.scrollLeft = e.scrollWidth; }")
            assert (before != right_edge(wide)) == is_cut, name


def right_edge(wide: Locator) -> object:
    """The colour of its ground there, above its first line of text."""
    with Image.open(io.BytesIO(wide.screenshot())) as image:
        return image.getpixel((image.width - 2, 3))


def test_filters_take_effect_at_once_and_can_be_linked_to(browser: Browser, address: str) -> None:
    with Visit(browser, address) as visit:
        page = visit.page
        page.goto("/")
        rows = page.locator("table.runs tbody tr")
        expect(rows).to_have_count(4)
        page.evaluate("() => { window.same = true; }")
        page.get_by_label("outcome").select_option("held")
        expect(rows).to_have_count(1)
        expect(page.locator("table.runs")).to_contain_text("neaptide:0.11")
        page.get_by_label("outcome").select_option("")
        page.get_by_label("search").press_sequentially("lost-write")
        expect(rows).to_have_count(1)
        assert page.evaluate("() => window.same")  # the page was not loaded again
        expect(page).to_have_url(re.compile("search=lost-write"))
        page.reload()
        expect(rows).to_have_count(1)
        assert visit.problems == []


def test_without_scripts_all_but_the_live_parts_work(browser: Browser, address: str) -> None:
    with Visit(browser, address, java_script_enabled=False) as visit:
        page = visit.page
        page.goto("/")
        page.get_by_label("workload").select_option("hw-truncation-loss")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("table.runs tbody tr")).to_have_count(2)
        for name in (LOST, HELD):
            page.get_by_label(f"compare {name}").check()
        page.get_by_role("button", name="Compare two").click()
        expect(page.locator("tr.marked").first).to_be_visible()
        page.get_by_role("link", name="hw-truncation-loss on neaptide:0.11").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("held")
        page.goto(f"/runs/{GOING_ON}")
        expect(page.get_by_text("load the page again")).to_be_visible()
        page.goto(f"/runs/{LOST}")
        page.get_by_role("link", name="logs beside the rounds").click()
        expect(page.locator("table.logs")).to_contain_text("truncating from 2 to 1")
        assert visit.problems == []


def test_an_anomaly_leads_to_its_round_and_a_message_to_its_words(
    browser: Browser, address: str
) -> None:
    with Visit(browser, address) as visit:
        page = visit.page
        page.goto(f"/runs/{LOST}")
        page.get_by_role("link", name="its round").first.click()
        truncation = page.locator("#round-0-1-0-e1-1-truncation")
        expect(truncation).to_be_in_viewport()
        ground = truncation.locator(".ground")
        expect(ground).to_have_css("fill", "rgb(254, 243, 199)")
        message = page.locator("#round-0-2-0-e0-10-response")
        assert "never the follower: discarded" in (message.locator("title").text_content() or "")
        message.hover()
        expect(message.locator(".ground")).to_have_css("fill", "rgb(232, 240, 251)")
        message.click()
        words = page.locator("#says-round-0-2-0-e0-10-response")
        expect(words).to_be_visible()
        expect(words).to_be_in_viewport()
        words.get_by_role("link").click()
        expect(message).to_be_in_viewport()
        assert visit.problems == []


def test_it_can_be_used_by_key(browser: Browser, address: str) -> None:
    with Visit(browser, address) as visit:
        page = visit.page
        page.goto(f"/runs/{LOST}")
        page.keyboard.press("Tab")
        skip = page.get_by_role("link", name="To the content")
        expect(skip).to_be_focused()
        expect(skip).to_be_in_viewport()
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"#main$"))
        truncation = page.locator("#round-0-1-0-e1-1-truncation")
        truncation.focus()
        expect(truncation.locator(".ground")).to_have_css("fill", "rgb(232, 240, 251)")
        page.keyboard.press("Enter")
        expect(page.locator("#says-round-0-1-0-e1-1-truncation")).to_be_in_viewport()
        assert visit.problems == []


def test_a_run_that_goes_on_is_followed_to_its_verdict(
    browser: Browser, address: str, runs: Stored
) -> None:
    """The last test: it changes the runs."""
    with Visit(browser, address) as visit:
        home, page = visit.page, visit.context.new_page()
        home.goto("/")
        home.get_by_label(f"compare {LOST}").check()
        page.goto(f"/runs/{GOING_ON}")
        counts = page.locator(".counts")
        expect(counts).to_contain_text("5")
        go_on(runs.going_on, 1, kill={"broker": "C"})
        expect(counts).to_contain_text("10")
        expect(page.get_by_text("C: SIGKILL")).to_be_visible()
        end(runs.going_on)
        expect(page.get_by_text("not judged yet")).to_be_visible()
        write_verdict(runs.going_on)
        expect(page.locator("section.progress")).to_have_count(0)
        expect(page.get_by_role("heading", level=1)).to_contain_text("anomalous")
        rows = home.locator("table.runs tbody tr")
        expect(rows.first).to_contain_text("anomalous")
        write_losing_run(runs.root / "2025-11-24T12-00-00Z-new")
        expect(rows).to_have_count(5)
        expect(home.get_by_label(f"compare {LOST}")).to_be_checked()
        with page.expect_download() as download:
            page.get_by_role("link", name="zip").first.click()
        assert download.value.suggested_filename == f"{GOING_ON}.zip"
        assert visit.problems == []
