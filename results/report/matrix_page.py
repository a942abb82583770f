"""How a matrix looks outside a terminal: one self-contained HTML page, or Markdown."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from neaptide.results.errors import StoreError
from neaptide.results.matrix import SIGNS, Matrix
from neaptide.results.report import REPORT_FILE, environment


def write_matrix(matrix: Matrix, path: Path) -> Path:
    """As the file's ending says: .md, .json, otherwise a page. Raises StoreError."""
    text = _FORMS.get(path.suffix, _page)(matrix, path.absolute().parent)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror}.") from error
    return path


def _page(matrix: Matrix, folder: Path) -> str:
    """Links to the reports are relative: page and runs can be moved together."""
    template = environment().get_template("matrix.html")
    return template.render(
        matrix=matrix,
        signs=SIGNS,
        link=lambda run: os.path.relpath(run / REPORT_FILE, folder),
        remarks=[cell for cell in matrix.cells if any(each.reasons for each in cell.repetitions)],
    )


def as_markdown(matrix: Matrix) -> str:
    """A table of the cells' texts; reasons are left to the page."""
    lines = [
        "| scenario | kind | " + " | ".join(f"`{system}`" for system in matrix.systems) + " |",
        "|---" * (2 + len(matrix.systems)) + "|",
    ]
    for name, _, kind in matrix.scenarios:
        cells = [matrix.cell(name, system) for system in matrix.systems]
        lines.append(
            f"| {name} | {kind} | " + " | ".join(cell.text if cell else "" for cell in cells) + " |"
        )
    return "\n".join(lines) + "\n"


_FORMS: Final[dict[str, Callable[[Matrix, Path], str]]] = {
    ".md": lambda matrix, _: as_markdown(matrix),
    ".json": lambda matrix, _: json.dumps(matrix.to_json(), indent=2) + "\n",
}
