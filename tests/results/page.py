"""A report as a parser of HTML reads it."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """The texts of a page, and whatever it would load."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        loading = ("src", "href", "xlink:href", "data", "action")
        self.loads += [v for k, v in attrs if k in loading and v and not v.startswith("#")]

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(" ".join(data.split()))
