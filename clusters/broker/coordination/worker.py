"""One thread that does the driver's tasks, one after the other, in the order in which they came.

So an event loop is never blocked by ZooKeeper, and events keep the order of what was done.
Consecutive tasks of the same batch are handed over together, that they may share a round trip.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Batched(Generic[T]):
    """A task that may be done together with its neighbours."""

    item: T


class Worker(Generic[T]):
    """`do_batch` does neighbouring `Batched` tasks; `on_error` gets what a task raised."""

    def __init__(
        self,
        name: str,
        do_batch: Callable[[list[T]], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | Batched[T] | None] = queue.SimpleQueue()
        self._do_batch = do_batch
        self._on_error = on_error
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, task: Callable[[], None] | Batched[T]) -> None:
        self._tasks.put(task)

    def stop(self) -> None:
        """Do what was put before, then end. Only tasks that cannot block any more may be left."""
        self._tasks.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            task = self._tasks.get()
            if isinstance(task, Batched):
                batch, task = self._batch_from(task)
                self._attempt(partial(self._do_batch, batch))
            if task is None:
                return
            self._attempt(task)

    def _batch_from(self, task: Batched[T]) -> tuple[list[T], Callable[[], None] | None]:
        """The batch that begins with a task, and the task behind it that is no part of it."""
        batch = [task.item]
        while True:
            try:
                following = self._tasks.get_nowait()
            except queue.Empty:
                return batch, _nothing
            if not isinstance(following, Batched):
                return batch, following
            batch.append(following.item)

    def _attempt(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:  # whatever it is, the owner must get it
            self._on_error(error)


def _nothing() -> None:
    """The task behind a batch at the end of the queue."""
