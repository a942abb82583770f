"""The Apache Kafka that is in a Docker image: its jars, copied out once, kept by the image's id.

Brokers then run on the image's Java with these jars, mounted like any others; nothing else of the
image is used, its start script and its settings least of all.
"""

from __future__ import annotations

import posixpath
import shutil
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neaptide.clusters.cache import cache_directory
from neaptide.clusters.errors import MissingPartError, UsageError
from neaptide.clusters.hosts.place import need_library
from neaptide.clusters.kafka.home import Home, read_home

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container
    from docker.models.images import Image

# Where images of Apache Kafka have it, unless their KAFKA_HOME says otherwise.
_FOLDERS: Final = ("/opt/kafka", "/opt/bitnami/kafka")


def read_image(name: str) -> Home:
    """Raises MissingPartError without Docker or the image, UsageError where it has no Kafka."""
    need_library("docker", "docker")
    from docker.errors import APIError, DockerException, ImageNotFound

    from neaptide.clusters.hosts.docker_host import connect

    client = connect()
    try:
        image = client.images.get(name)
        directory = cache_directory() / "docker" / f"kafka-{image.short_id.partition(':')[2]}"
        if not directory.exists():
            _copy_out(client, image, name, directory)
    except (ImageNotFound, APIError) as error:
        raise MissingPartError(
            f"This Docker has no image {name}: fetch it (docker pull {name}) or name another."
        ) from error
    except DockerException as error:
        raise MissingPartError(f"Docker did not give the jars of {name}: {error}") from error
    finally:
        client.close()
    return replace(read_home(directory), image=name)


def _copy_out(client: DockerClient, image: Image, name: str, directory: Path) -> None:
    """All or nothing, so that what is there is whole."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    container = _container(client, image, f"neaptide-{directory.name}")
    try:
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".jars-") as scratch:
            home = Path(scratch) / "kafka"
            if not any(_copied(container, folder, home) for folder in _folders(image)):
                raise UsageError(
                    f"The image {name} has no Kafka in {' or '.join(_folders(image))}; name an"
                    " image of Apache Kafka, or use --kafka-home or a version."
                )
            read_home(home)
            home.rename(directory)
    finally:
        container.remove(force=True, v=True)


def _container(client: DockerClient, image: Image, name: str) -> Container:
    """Created, never started; one that a command which was killed has left is replaced."""
    for left in client.containers.list(
        all=True, ignore_removed=True, filters={"name": f"^/{name}$"}
    ):
        left.remove(force=True, v=True)
    return client.containers.create(image, entrypoint=["true"], command=[], name=name)


def _folders(image: Image) -> list[str]:
    environment = (entry.partition("=") for entry in image.attrs["Config"].get("Env") or ())
    named = [value for key, _, value in environment if key == "KAFKA_HOME"]
    return list(dict.fromkeys((*named, *_FOLDERS)))


def _copied(container: Container, folder: str, home: Path) -> bool:
    """Whether the folder has jars; they are in `home`/libs then."""
    from docker.errors import NotFound

    try:
        chunks, _ = container.get_archive(posixpath.join(folder, "libs"))
    except NotFound:
        return False
    with tempfile.TemporaryFile() as archive:
        archive.writelines(chunks)
        archive.seek(0)
        with tarfile.open(fileobj=archive) as tar:
            jars = [member for member in tar if member.name.endswith(".jar")]
            tar.extractall(home, jars, filter="data")
    libs = home / "libs"
    if not any(libs.glob("*.jar")):
        shutil.rmtree(home, ignore_errors=True)
        return False
    return True
