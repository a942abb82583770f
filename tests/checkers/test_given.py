"""What Spark was given already is known before it starts, and is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.checkers.pipeline.cluster_session import driver_address
from neaptide.checkers.pipeline.given import MASTER, adds_classes, given_settings
from neaptide.checkers.pipeline.session import _settings

URL = "spark://one:7077"


def defaults(directory: Path, text: str | bytes) -> dict[str, str]:
    content = text if isinstance(text, bytes) else text.encode()
    (directory / "spark-defaults.conf").write_bytes(content)
    return {"SPARK_CONF_DIR": str(directory)}


@pytest.mark.parametrize(
    "text",
    [f"spark.master {URL}", f"spark.master={URL}", f"# more\nspark.master   {URL}  \n\nother x"],
)
def test_a_master_of_the_defaults_is_known(tmp_path: Path, text: str) -> None:
    assert given_settings(defaults(tmp_path, text))[MASTER] == URL


@pytest.mark.parametrize(
    "arguments",
    [
        f"--master {URL} pyspark-shell",
        f"--master={URL} pyspark-shell",
        f"--name x --conf spark.master={URL} pyspark-shell",
        f"--conf 'spark.master={URL}' pyspark-shell",
        f"-c spark.master={URL}",
    ],
)
def test_arguments_of_spark_submit_win(tmp_path: Path, arguments: str) -> None:
    environment = defaults(tmp_path, "spark.master yarn\nspark.driver.host a")
    assert given_settings({**environment, "PYSPARK_SUBMIT_ARGS": arguments}) == {
        MASTER: URL, "spark.driver.host": "a"
    }  # fmt: skip


def test_the_variable_is_the_last_to_be_asked(tmp_path: Path) -> None:
    assert given_settings({"MASTER": "yarn", "SPARK_CONF_DIR": str(tmp_path)}) == {MASTER: "yarn"}
    assert (
        given_settings({"MASTER": "yarn", **defaults(tmp_path, f"{MASTER} {URL}")})[MASTER] == URL
    )


@pytest.mark.parametrize("text", [None, b"\xff\xfe\x00", ""])
def test_who_gives_nothing_has_given_nothing(tmp_path: Path, text: bytes | None) -> None:
    environment = {"SPARK_CONF_DIR": str(tmp_path)}
    if text is not None:
        defaults(tmp_path, text)
    assert MASTER not in given_settings(environment)


@pytest.mark.parametrize(
    ("arguments", "yes"),
    [
        ("--packages a:b:1", True),
        ("--jars=a.jar", True),
        ("--driver-class-path x", True),
        ("--conf spark.jars.packages=a:b:1", True),
        ("--master yarn", False),
    ],
)
def test_more_classes_are_noticed(tmp_path: Path, arguments: str, yes: bool) -> None:
    given = given_settings({"PYSPARK_SUBMIT_ARGS": arguments, "SPARK_CONF_DIR": str(tmp_path)})
    assert adds_classes(given) is yes


@pytest.mark.parametrize("master", ["yarn", "k8s://https://api:6443"])
def test_executors_elsewhere_are_not_sent_to_this_loopback(master: str) -> None:
    address = driver_address(master)
    assert address is None
    set_here = _settings("3g", 1, address, ())
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & set_here.keys()
    assert _settings("3g", 1, "127.0.0.1", ())["spark.driver.host"] == "127.0.0.1"


def test_an_address_that_was_given_is_kept() -> None:
    """Nobody is asked whether the master listens: it would be refused here."""
    assert driver_address("spark://127.0.0.1:1", {"spark.driver.host": "gateway"}) is None
