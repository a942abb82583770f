"""The words that people read: Kafka's and Jepsen's, and none that a stranger cannot understand."""

from __future__ import annotations

import re

import pytest

from tests.test_documents import DOCUMENTS, name_of

# Brokers send, receive, report, learn and know.
NOT_OURS = re.compile(r"\b(?:tells?|told|telling|hears?|heard|hearing)\b", re.IGNORECASE)
SHORT = re.compile(
    r"so many seeds|taken for dead|so is held|was kept\b|missed their aim|too dupl", re.I
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_documents_use_kafkas_words(document: object) -> None:
    text = document.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    if name_of(document) != "CONTRIBUTING.md":  # type: ignore[arg-type]
        assert NOT_OURS.findall(text) == []
    assert SHORT.findall(text) == []
