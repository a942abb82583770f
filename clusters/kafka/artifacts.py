"""Java artifacts from Maven Central: a coordinate in, a class path out.

Maven resolves the dependencies; the class path is kept beside a generated pom in the user's cache
directory, so that a second call starts nothing and needs no network; beside it are the checksums
of the jars, which are compared before every use. No distribution archives and no shell scripts:
whoever runs a class names it with `java -cp`.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from neaptide.clusters.cache import cache_directory
from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.kafka.checksums import read_seals, seal, verified, write_seals

_COORDINATE: Final = re.compile(r"[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+")
_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
_TIMEOUT_SECONDS: Final = 600
_DAMAGED: Final = re.compile(r"Checksum validation failed")
_UNREACHABLE: Final = re.compile(r"Could not transfer (?:artifact|metadata)")
_COLOUR: Final = re.compile(r"\x1b\[[\d;]*m")
_ABSENT: Final = re.compile(r"([^:\s]+):([^:\s]+):jar:([^:\s]+) (?:in|was not found in) ")

_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>neaptide</groupId>
  <artifactId>class-path</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""

_DEPENDENCY: Final = """\
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
      <exclusions>{exclusions}</exclusions>
    </dependency>"""

_EXCLUSION: Final = (
    "<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
)


_STORED: Final = "class-path"


class ArtifactError(MissingPartError):
    """The artifacts cannot be had; the message says what to do."""


def class_path(*coordinates: str, without: Sequence[str] = ()) -> str:
    """The class path of `group:artifact:version` with all dependencies but some, each of them as
    `group:artifact`; the first ones win."""
    for coordinate in coordinates:
        if not _COORDINATE.fullmatch(coordinate):
            raise ArtifactError(f"Write {coordinate!r} as group:artifact:version.")
    directory = _directory((*coordinates, *(f"-{one}" for one in without)))
    directory.mkdir(parents=True, exist_ok=True)
    stored = directory / _STORED
    with _locked(directory / ".lock"):
        known = _read(stored)
        if known is None:
            _resolve(directory, coordinates, without)
            known = _read(stored)
        if known is None:
            raise ArtifactError(
                f"Maven left no class path in {directory}; remove it and try again."
            )
        _verify(directory / "checksums", [Path(jar) for jar in known.split(os.pathsep)])
    return known


def has_class_path(*coordinates: str) -> bool:
    """Whether it was fetched before; what is amiss with its jars is seen when it is used."""
    return (_directory(coordinates) / _STORED).is_file()


def _directory(coordinates: tuple[str, ...]) -> Path:
    return cache_directory() / "kafka" / "+".join(coordinates).replace(":", "_")


def _verify(file: Path, jars: list[Path]) -> None:
    """Raises ArtifactError where a jar is not the one that came."""
    if not file.exists():
        write_seals(file, map(seal, jars))
        return
    before = read_seals(file)
    after = []
    for known in before:
        now = verified(known)
        if now is None:
            raise ArtifactError(
                f"{known.path} is not the file that was fetched (its checksum has changed); delete"
                " it, and it is fetched anew."
            )
        after.append(now)
    if after != before:
        write_seals(file, after)


def _read(stored: Path) -> str | None:
    """A class path whose jars are all still there."""
    if not stored.exists():
        return None
    found = stored.read_text().strip()
    jars = found.split(os.pathsep)
    return found if found and all(Path(jar).exists() for jar in jars) else None


def _resolve(directory: Path, coordinates: Sequence[str], without: Sequence[str]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ArtifactError("Install Maven (the command mvn) to fetch Kafka from Maven Central.")
    (directory / "pom.xml").write_text(_pom(coordinates, without))
    fresh = directory / "class-path.fresh"
    # Checksums are Maven's to verify here; what it could not fetch last time it is to try again.
    strict = ("--strict-checksums", "--update-snapshots")
    command = [maven, "--batch-mode", "--quiet", *strict, _GOAL, f"-Dmdep.outputFile={fresh}"]
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ArtifactError(
            f"Maven did not fetch {' '.join(coordinates)} within {_TIMEOUT_SECONDS} s; look at the "
            "network and try again."
        ) from error
    if done.returncode != 0:
        raise ArtifactError(_explain(coordinates, done.stdout))
    fresh.replace(directory / "class-path")
    (directory / "checksums").unlink(missing_ok=True)


def _explain(coordinates: Sequence[str], output: str) -> str:
    absent = _ABSENT.search(output)
    if absent is not None:
        return f"Maven Central has no {':'.join(absent.groups())}; choose a version that it has."
    if _DAMAGED.search(output):
        return (
            f"What Maven fetched for {' '.join(coordinates)} has a wrong checksum; try again, and"
            " look at the network or the mirror if it stays so."
        )
    if _UNREACHABLE.search(output):
        return (
            f"Maven Central cannot be reached, and {' '.join(coordinates)} is not in the cache"
            f" ({cache_directory()}); connect to the network once, or name an Apache Kafka of your"
            " own with --kafka-home."
        )
    errors = [line for line in output.splitlines() if "ERROR" in line]
    why = _COLOUR.sub("", errors[0]) if errors else "it said nothing"
    return (
        f"Maven could not fetch {' '.join(coordinates)}; look at the version and the network, then "
        f"try again ({why})."
    )


def _pom(coordinates: Sequence[str], without: Sequence[str]) -> str:
    left_out = [[escape(part) for part in one.split(":")] for one in without]
    exclusions = "".join(_EXCLUSION.format(group=g, artifact=a) for g, a in left_out)
    parts = [[escape(part) for part in coordinate.split(":")] for coordinate in coordinates]
    dependencies = [
        _DEPENDENCY.format(group=g, artifact=a, version=v, exclusions=exclusions)
        for g, a, v in parts
    ]
    return _POM.format(dependencies="\n".join(dependencies))


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """One process at a time resolves the same artifacts."""
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def where() -> str:
    """Where on this machine the jars of a kafka:VERSION lie, once they were fetched."""
    of_maven = Path.home() / ".m2" / "repository"
    return f"{of_maven} (or where Maven's settings say); class paths in {cache_directory()}/kafka"
