"""A local check uses its own Spark and Python, whatever the environment has for others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from neaptide.checkers.pipeline.session import local_session
from neaptide.results.errors import MissingToolError

FOR_OTHERS = {
    "SPARK_HOME": "/no/such/place",
    "SPARK_CONF_DIR": "/no/such/place",
    "PYSPARK_PYTHON": "/usr/bin/false",
    "PYSPARK_DRIVER_PYTHON": "/usr/bin/false",
    "PYSPARK_SUBMIT_ARGS": "--nonsense",
    "SPARK_REMOTE": "sc://nowhere",
}
CHECKS = """
import os, sys
before = dict(os.environ)
from neaptide.checkers.pipeline.session import local_session
spark = local_session("local[1]")
assert {n: os.environ[n] for n in before if n.startswith(("SPARK", "PYSPARK"))} == {
    n: v for n, v in before.items() if n.startswith(("SPARK", "PYSPARK"))
}, "what others are asked for is as it was"
found = spark.range(2).mapInPandas(lambda frames: frames, "id long").collect()
print([row.id for row in found])
spark.stop()
"""


@pytest.mark.proof
@pytest.mark.spark
def test_a_local_spark_is_its_own(tmp_path: Path) -> None:
    defaults = {
        "spark.master": "yarn",
        "spark.submit.deployMode": "cluster",
        "spark.pyspark.python": "/usr/bin/false",
        "spark.driver.memory": "1m",
    }
    lines = (f"{name} {value}\n" for name, value in defaults.items())
    (tmp_path / "spark-defaults.conf").write_text("".join(lines))
    environment = {**os.environ, **FOR_OTHERS, "SPARK_CONF_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", CHECKS], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[0, 1]", done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYSPARK_DRIVER_PYTHON"])
def test_what_cannot_be_is_named_by_its_variable(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in FOR_OTHERS:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, {**FOR_OTHERS, "PYSPARK_DRIVER_PYTHON": "/no/such/python"}[name])
    monkeypatch.setattr(
        "neaptide.checkers.pipeline.session.SparkSession.getActiveSession", lambda: None
    )
    with pytest.raises(MissingToolError, match=name):
        local_session("spark://127.0.0.1:1")
