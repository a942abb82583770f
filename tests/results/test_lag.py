"""The picture of a measured lag: a tooth for each fetch, and what was measured on it."""

from __future__ import annotations

import numpy as np

from neaptide.results.report.lag import teeth


def test_a_lag_grows_from_each_fetch_to_the_next_and_to_the_end() -> None:
    at_s, times = teeth(np.array([1_000_000_000, 1_500_000_000]), 4_500_000_000, 2_000.0)
    assert at_s.tolist() == [1.0, 1.5, 1.5, 4.5]
    assert times.tolist() == [0.0, 0.25, 0.0, 1.5]
