"""The fetch-round diagram as SVG text. Only drawing: what is drawn is decided in `layout`."""

from __future__ import annotations

import html
from collections.abc import Collection
from typing import Final

from neaptide.results.report.layout import TOP, Drawing
from neaptide.results.report.story import (
    CONSUMER,
    PRODUCER,
    Arrow,
    Badge,
    Cells,
    Line,
    LogState,
    Moment,
)
from neaptide.results.visible import visible

_INK: Final = {"plain": "#1f5fa8", "good": "#2f7d46", "bad": "#c0312b", "quiet": "#64748b"}
_CELL_WIDTH: Final = 34
_CELL_HEIGHT: Final = 18
_CELL_STYLES: Final = {  # by (is at issue, is below the high watermark)
    (False, True): 'fill="#dbeafe" stroke="#1f5fa8"',
    (False, False): 'fill="#fff" stroke="#64748b" stroke-dasharray="3 2"',
    (True, True): 'fill="#fee2e2" stroke="#c0312b" stroke-width="1.6"',
    (True, False): 'fill="#fff" stroke="#c0312b" stroke-width="1.6" stroke-dasharray="3 2"',
}
_TEXT_WIDTH: Final = 6.1  # of one sign at 11 px, roughly
_GAP: Final = 6
_TIMES_WIDTH: Final = 56
_MARK: Final = "#fef3c7"


def draw(
    drawing: Drawing, marked: Collection[str] = (), *, anchored: bool = True, prefix: str = ""
) -> str:
    """One self-contained `<svg>`. `marked`: anchors of messages that are to stand out.

    `anchored`: messages have their ids and lead to their words (`#says-…`). Of two pictures in one
    page only one may, and each has a `prefix` of its own for what else has an id.
    """
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawing.width} {drawing.height}"'
        f' width="{drawing.width}" height="{drawing.height}" font-size="11"'
        ' font-family="DejaVu Sans, Verdana, sans-serif" role="img"'
        ' aria-label="fetch rounds of the run">',
        _markers(prefix),
        *_lifelines(drawing),
        *_times(drawing),
        *(
            _with_words(
                moment, _moment(drawing, moment, row.y, prefix), drawing, row.y, marked, anchored
            )
            for row in drawing.rows
            for moment in row.moments
        ),
        "</svg>",
    ]
    return "\n".join(parts)


def _markers(prefix: str) -> str:
    heads = (
        f'<marker id="{prefix}head-{tone}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8"'
        f' markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="{ink}"/></marker>'
        for tone, ink in _INK.items()
    )
    return f"<defs>{''.join(heads)}</defs>"


def _lifelines(drawing: Drawing) -> list[str]:
    parts = []
    for lifeline in drawing.lifelines:
        x = drawing.x(lifeline)
        parts.append(
            f'<line x1="{x}" y1="{TOP - 24}" x2="{x}" y2="{drawing.height}"'
            ' stroke="#cbd5e1" stroke-width="2"/>'
        )
    for dead in drawing.dead:
        x = drawing.x(dead.lifeline)
        parts.append(
            f'<line x1="{x}" y1="{dead.y_from}" x2="{x}" y2="{dead.y_to}"'
            ' stroke="#ffffff" stroke-width="3"/>'
            f'<line x1="{x}" y1="{dead.y_from}" x2="{x}" y2="{dead.y_to}"'
            ' stroke="#c0312b" stroke-width="1.5" stroke-dasharray="2 5"/>'
        )
    for lifeline in drawing.lifelines:
        x = drawing.x(lifeline)
        broker = f"broker {drawing.ids[lifeline]}" if lifeline in drawing.ids else "broker"
        what = {PRODUCER: "clients", CONSUMER: "below HW"}.get(lifeline, broker)
        parts.append(
            f'<rect x="{x - 55}" y="14" width="110" height="34" rx="5" fill="#f1f5f9"'
            ' stroke="#cbd5e1"/>'
            f'<text x="{x}" y="29" text-anchor="middle" font-size="13" font-weight="bold"'
            f' fill="#0f172a">{escape(lifeline)}</text>'
            f'<text x="{x}" y="42" text-anchor="middle" font-size="9" fill="#64748b">{what}</text>'
        )
    return parts


def _times(drawing: Drawing) -> list[str]:
    """Seconds since the run began, at the right edge; said again only when they change."""
    parts, said = [], ""
    for row in drawing.rows:
        seconds = f"{row.at_ns / 1e9:.3f} s"
        if seconds != said:
            parts.append(
                f'<text x="{drawing.width - 4}" y="{row.y + 3}" text-anchor="end" font-size="11"'
                f' fill="#475569">{seconds}</text>'
            )
        said = seconds
    return parts


def _with_words(
    moment: Moment, drawn: str, drawing: Drawing, y: int, marked: Collection[str], anchored: bool
) -> str:
    """With what it says where a pointer rests on it, and a ground that shows that it is meant."""
    if not isinstance(moment, Arrow | Badge) or not moment.says:
        return drawn
    match moment:
        case Badge():
            width = _badge_width(moment) + 2 * _GAP
            left = drawing.x(moment.lifeline) - width // 2
        case Arrow():
            ends = sorted((drawing.x(moment.source), drawing.x(moment.destination)))
            left, width = ends[0] - _GAP, ends[1] - ends[0] + 2 * _GAP
    is_marked = moment.anchor in marked
    look = f'fill="{_MARK}" stroke="{_INK["bad"]}"' if is_marked else 'fill="#fff" fill-opacity="0"'
    ground = (
        f'<rect class="ground" x="{left}" y="{y - 18}" width="{width}" height="33" rx="5" {look}/>'
    )
    title = f"<title>{escape(moment.says)}</title>"
    if not anchored or not moment.anchor:
        return f'<g class="message">{title}{ground}{drawn}</g>'
    return (
        f'<a class="message" id="{escape(moment.anchor)}" href="#says-{escape(moment.anchor)}">'
        f"{title}{ground}{drawn}</a>"
    )


def _moment(drawing: Drawing, moment: Moment, y: int, prefix: str) -> str:
    match moment:
        case Arrow():
            return _arrow(drawing, moment, y, prefix)
        case Badge():
            return _badge(drawing.x(moment.lifeline), moment, y)
        case Cells():
            return _cells(drawing.x(moment.lifeline), moment.state, y, drawing.guilty)
        case Line():
            return _line(drawing, moment, y)


def _arrow(drawing: Drawing, arrow: Arrow, y: int, prefix: str) -> str:
    x1, x2 = drawing.x(arrow.source), drawing.x(arrow.destination)
    direction = 1 if x2 > x1 else -1
    ink = _INK[arrow.tone]
    start, end = x1 + direction * _GAP, x2 - direction * _GAP
    stop = start + round((end - start) * 0.62) if arrow.lost else end
    dash = ' stroke-dasharray="5 4"' if arrow.lost else ""
    head = "" if arrow.lost else f' marker-end="url(#{prefix}head-{arrow.tone})"'
    drop = 4 if not arrow.lost else 2
    parts = [
        f'<line x1="{start}" y1="{y - drop}" x2="{stop}" y2="{y + drop}" stroke="{ink}"'
        f' stroke-width="1.5"{dash}{head}/>'
    ]
    if arrow.lost:
        cx, cy = stop + direction * 9, y + drop
        parts.append(
            f'<circle cx="{cx}" cy="{cy}" r="8" fill="#fff" stroke="{ink}" stroke-width="1.5"/>'
            f'<path d="M{cx - 2.5} {cy - 4}V{cy + 4}M{cx + 2.5} {cy - 4}V{cy + 4}"'
            f' stroke="{ink}" stroke-width="1.8"/>'
        )
    parts.append(_label((start + end) // 2, y - 8, arrow.text, ink))
    return "".join(parts)


def _label(x: int, y: int, text: str, ink: str) -> str:
    """Text on a white ground, so that lifelines do not run through it."""
    width = round(len(text) * _TEXT_WIDTH) + 6
    return (
        f'<rect x="{x - width // 2}" y="{y - 9}" width="{width}" height="13" fill="#fff"'
        ' fill-opacity="0.88"/>'
        f'<text x="{x}" y="{y + 1}" text-anchor="middle" fill="{ink}">{escape(text)}</text>'
    )


def _badge_width(badge: Badge) -> int:
    return round(len(badge.text) * 6.6) + 18


def _badge(x: int, badge: Badge, y: int) -> str:
    width = _badge_width(badge)
    ink = _INK[badge.tone]
    return (
        f'<rect x="{x - width // 2}" y="{y - 10}" width="{width}" height="20" rx="10"'
        f' fill="{ink}"/><text x="{x}" y="{y + 4}" text-anchor="middle" fill="#fff"'
        f' font-weight="bold">{escape(badge.text)}</text>'
    )


def _cells(x: int, state: LogState, y: int, guilty: frozenset[str]) -> str:
    """Solid cells are below the high watermark, dashed ones above it; red ones are at issue."""
    widths = [max(_CELL_WIDTH, round(len(value) * 6.6) + 10) for _, value in state.records]
    total = sum(widths) or _CELL_WIDTH
    left, top = x - total // 2, y - 20
    parts = [f'<rect x="{left - 2}" y="{top - 2}" width="{total + 4}" height="36" fill="#fff"/>']
    if not state.records:
        parts.append(
            f'<text x="{x}" y="{top + 12}" text-anchor="middle" fill="#94a3b8">empty</text>'
        )
    for (offset, value), width in zip(state.records, widths, strict=True):
        style = _CELL_STYLES[value in guilty, offset < state.high_watermark]
        parts.append(
            f'<rect x="{left}" y="{top}" width="{width - 2}" height="{_CELL_HEIGHT}" rx="3"'
            f" {style}/>"
            f'<text x="{left + width // 2 - 1}" y="{top + 13}" text-anchor="middle"'
            f' fill="#0f172a">{escape(value)}</text>'
        )
        left += width
    parts.append(
        f'<text x="{x}" y="{top + 31}" text-anchor="middle" font-size="10" fill="#475569">'
        f"LEO {state.log_end_offset} · HW {state.high_watermark}</text>"
    )
    return "".join(parts)


def _line(drawing: Drawing, line: Line, y: int) -> str:
    ink = _INK[line.tone]
    end = drawing.width - _TIMES_WIDTH
    return f'<line x1="8" y1="{y}" x2="{end}" y2="{y}" stroke="#e2e8f0"/>' + _label(
        8 + round(len(line.text) * _TEXT_WIDTH) // 2 + 3, y + 3, line.text, ink
    )


def escape(text: str) -> str:
    return html.escape(visible(text))
