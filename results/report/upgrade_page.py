"""How the comparison of two versions looks outside a terminal: one self-contained HTML page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from neaptide.results.errors import StoreError
from neaptide.results.matrix import SIGNS
from neaptide.results.report import REPORT_FILE, environment
from neaptide.results.upgrade import CHANGES, Upgrade


class Settings(Protocol):
    """Of the user's brokers: which were used, and why others were not."""

    @property
    def used(self) -> Mapping[str, str]: ...

    @property
    def left_out(self) -> Mapping[str, str]: ...


def write_upgrade(upgrade: Upgrade, settings: Settings, path: Path) -> Path:
    """Links to the reports are relative: page and runs can be moved together. Raises StoreError."""
    folder = path.absolute().parent
    text = (
        environment()
        .get_template("upgrade.html")
        .render(
            upgrade=upgrade,
            settings=settings,
            changes=CHANGES,
            signs=SIGNS,
            link=lambda run: os.path.relpath(run / REPORT_FILE, folder),
        )
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror}.") from error
    return path
