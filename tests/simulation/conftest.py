"""The Spark session of the checkers' tests, for those that hold the two judges together."""

from tests.checkers.conftest import spark

__all__ = ["spark"]
