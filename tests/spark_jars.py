"""Jars that go beside Spark's own: those that Spark has already are left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyspark

from neaptide.clusters.kafka.artifacts import class_path


def jars_beside_spark(*coordinates: str, without: Sequence[str] = ()) -> list[Path]:
    """Of what Maven names. Raises MissingPartError."""
    there = {_artifact(jar) for jar in Path(pyspark.__file__).parent.glob("jars/*.jar")}
    fetched = map(Path, class_path(*coordinates, without=without).split(":"))
    return [jar for jar in fetched if _artifact(jar) not in there]


def _artifact(jar: Path) -> str:
    return jar.name.rstrip(".jar0123456789").rpartition("-")[0] or jar.name
