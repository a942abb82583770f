"""The files that system files name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.own.files import BROKER


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "broker.properties").write_text(BROKER, encoding="utf-8")
    (tmp_path / "controller.properties").write_text("node.id={id}\n", encoding="utf-8")
    program = tmp_path / "start.sh"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    return tmp_path
