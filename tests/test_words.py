"""The words that people read: Kafka's and Jepsen's, and none that a stranger cannot understand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents import DOCUMENTS, ROOT, name_of

# Brokers send, receive, report, learn and know.
NOT_OURS = re.compile(
    r"(?<![a-z])(?:tells?|told|telling|hears?|heard|hearing)(?![a-z])", re.IGNORECASE
)
UNCLEAR = re.compile(
    r"so many seeds|taken for dead|so is held|was kept\b|missed their aim|duplicate counts too",
    re.IGNORECASE,
)
FOLDERS = (
    "harness",
    "results",
    "checkers",
    "workloads",
    "nemesis",
    "clusters",
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_documents_use_kafkas_words(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    if document.name not in ("CONTRIBUTING.md", "CHANGELOG.md"):  # they are about these words
        assert NOT_OURS.findall(text) == []
    assert UNCLEAR.findall(text) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_code_uses_kafkas_words(folder: str) -> None:
    """In names, messages and docstrings; also in scenarios, rules and pages."""
    endings = (".py", ".toml", ".sql", ".html")
    files = (file for file in (ROOT / folder).rglob("*") if file.suffix in endings)
    found = {
        f"{name_of(file)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if NOT_OURS.search(line) or UNCLEAR.search(line)
    }
    assert found == set()
