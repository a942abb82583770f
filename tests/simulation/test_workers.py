"""The processes of a search end when nobody wants what they look for."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from neaptide.nemesis.search.workers import whole_start, workers_of

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


@pytest.fixture
def elsewhere() -> Iterator[None]:
    """A thread that receives whatever the main thread does not."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("elsewhere")
def test_an_interrupt_waits_until_what_starts_has_started(number: signal.Signals) -> None:
    started: list[bool] = []

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            _start_through(number, started)
    finally:
        signal.signal(number, before)
    assert started == [True]


def _start_through(number: signal.Signals, started: list[bool]) -> None:
    with whole_start():
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), 0)  # Python looks for signals
        started.append(True)


def test_who_is_not_interrupted_hears_of_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    with whole_start():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_what_comes_to_its_end_is_waited_for() -> None:
    with workers_of(2) as pool:
        results = [pool.submit(pow, 2, number) for number in range(2)]
        assert [result.result() for result in results] == [1, 2]
