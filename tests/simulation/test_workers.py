"""The processes of a search end when nobody wants what they look for."""

from __future__ import annotations

import signal

import pytest

from neaptide.nemesis.search.workers import workers_of

pytestmark = pytest.mark.live


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.timeout(60)
def test_what_is_interrupted_waits_for_no_seed(error: type[BaseException]) -> None:
    """A seed lasts many seconds, and these last for ever."""
    with pytest.raises(error):
        _search_until(error)


def _search_until(error: type[BaseException]) -> None:
    with workers_of(2) as pool:
        assert pool.submit(abs, -1).result() == 1
        for _ in range(3):
            pool.submit(signal.pause)
        raise error


def test_what_comes_to_its_end_is_waited_for() -> None:
    with workers_of(2) as pool:
        results = [pool.submit(pow, 2, number) for number in range(2)]
        assert [result.result() for result in results] == [1, 2]
