"""What an error says of a send: only what surely was not done is a fail."""

from __future__ import annotations

import pytest

from neaptide.workloads.definite import completion_type


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, "ok"),
        ("MSG_SIZE_TOO_LARGE", "fail"),
        # The last answer, maybe after one of a leader that stepped down with the record in its log.
        ("NOT_ENOUGH_REPLICAS", "info"),
        ("LEADER_NOT_AVAILABLE", "info"),
        # The record is in the log, and stays there.
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "info"),
        # A leader that steps down answers so to what it has appended already.
        ("NOT_LEADER_FOR_PARTITION", "info"),
        ("REQUEST_TIMED_OUT", "info"),
        ("_MSG_TIMED_OUT", "info"),
        ("_TRANSPORT", "info"),
        ("AN_ERROR_OF_TOMORROW", "info"),
    ],
)
def test_only_a_definite_error_is_a_fail(error: str | None, expected: str) -> None:
    assert completion_type(error) == expected
