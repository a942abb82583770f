"""What whoever runs this gave Spark already: by `spark-submit`, by `PYSPARK_SUBMIT_ARGS`, or in
`spark-defaults.conf` of `SPARK_CONF_DIR`.

The rule: as Spark has it, what is nearer to the command wins. A file that cannot be read gives
nothing: Spark, which reads it after us, says what is wrong with it.
"""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import javaproperties
import pyspark

MASTER: Final = "spark.master"
_DEFAULTS: Final = "spark-defaults.conf"
# Options of `spark-submit` for which there are settings.
_OPTIONS: Final[Mapping[str, str]] = {
    "--master": MASTER,
    "--jars": "spark.jars",
    "--packages": "spark.jars.packages",
    "--driver-class-path": "spark.driver.extraClassPath",
}
_CONF: Final = ("--conf", "-c")


def given_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Settings by their names, `spark.master` among them."""
    named = {MASTER: environment["MASTER"]} if environment.get("MASTER") else {}
    arguments = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    return named | _of_file(environment) | _of_arguments(arguments) | _of_submit(environment)


def adds_classes(settings: Mapping[str, str]) -> bool:
    """Whether Java gets more than what comes with Spark."""
    return any(name in settings for name in _OPTIONS.values() if name != MASTER)


def _of_file(environment: Mapping[str, str]) -> dict[str, str]:
    home = environment.get("SPARK_HOME") or Path(pyspark.__file__).parent
    directory = environment.get("SPARK_CONF_DIR") or Path(home, "conf")
    try:
        with Path(directory, _DEFAULTS).open(encoding="utf-8") as file:
            return {name: value.strip() for name, value in javaproperties.load(file).items()}
    except (OSError, ValueError):  # there is none, it is no text, or no properties
        return {}


def _of_arguments(arguments: list[str]) -> dict[str, str]:
    """`--master URL`, `--conf NAME=VALUE` and the like, or with `=` in place of the space."""
    settings = {}
    words = [word for each in arguments for word in _split(each)]
    for option, value in itertools.pairwise(words):
        if option in _OPTIONS:
            settings[_OPTIONS[option]] = value
        elif option in _CONF:
            name, _, value = value.partition("=")
            settings[name] = value
    return settings


def _split(argument: str) -> list[str]:
    option, is_equal, value = argument.partition("=")
    return [option, value] if is_equal and option in (*_OPTIONS, *_CONF) else [argument]


def _of_submit(environment: Mapping[str, str]) -> dict[str, str]:
    """Of the Java that `spark-submit` has started this process with."""
    if "PYSPARK_GATEWAY_PORT" not in environment:
        return {}
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        properties = gateway.jvm.java.lang.System.getProperties()
        names = [name for name in properties.stringPropertyNames() if name.startswith("spark.")]
        return {name: properties.getProperty(name) for name in names}
    finally:
        gateway.close()
