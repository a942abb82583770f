"""One Spark session for all tests of the checkers, and a way to check many stories in one job."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from tests.checkers.reading import Judged, judged
from tests.started_spark import started_spark


class Writable(Protocol):
    """Something that can be written as the directory of a run."""

    def write(self, directory: Path) -> Path: ...


Judge = Callable[[Mapping[str, Writable]], dict[str, Judged]]


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    with started_spark() as session:
        yield session


@pytest.fixture(scope="package")
def judge(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Write each story as a run, check all of them in one job, read back what was found."""
    numbers = itertools.count()

    def check(stories: Mapping[str, Writable]) -> dict[str, Judged]:
        runs: Path = tmp_path_factory.mktemp(f"runs{next(numbers)}")
        directories = {name: story.write(runs / name) for name, story in stories.items()}
        verdicts = check_runs(spark, directories.values())
        return {
            name: judged(verdict, directories[name])
            for name, verdict in zip(directories, verdicts, strict=True)
        }

    return check
