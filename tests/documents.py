"""The documents of this repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))
