"""What Spark forks its Python workers from, on this machine: PySpark's own daemon, with all that a
check needs loaded before the first fork.

`spark.python.daemon.module` names this module. Nothing may be started here: what runs in a thread
is not there after a fork.
"""

import runpy

import duckdb  # noqa: F401
import pyarrow.compute  # noqa: F401
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401

import neaptide.checkers.pipeline.in_tasks  # noqa: F401

if __name__ == "__main__":
    runpy.run_module("pyspark.daemon", run_name="__main__")
