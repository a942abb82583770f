"""The image of a node: Debian with Java, Python and nftables, and what our broker imports.

Built here, once, by debootstrap and `docker import`, for no registry need be reachable; the file
system is kept in the user's cache by what it is made of, so that another Docker, or one that was
emptied, gets it in seconds. Our own code and Kafka's jars are not in it: they are mounted.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neaptide.clusters.errors import MissingPartError

if TYPE_CHECKING:
    from docker import DockerClient

REPOSITORY: Final = "neaptide-node"
SITE: Final = "/opt/neaptide/site"  # what our broker imports, in the image
_SUITE: Final = "bookworm"
_PYTHON: Final = "3.11"  # of that suite
_PACKAGES: Final = ("openjdk-17-jre-headless", "python3", "nftables")
_IMPORTED: Final = (
    *("kio", "kazoo", "crc32c", "cramjam", "javaproperties", "uvloop"),
    "google-re2",  # only where consumers subscribe by a pattern
)
_UNUSED: Final = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt")
_UNUSED_FILES: Final = "var/lib/apt/lists"
_ENVIRONMENT: Final = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TIMEOUT_S: Final = 900.0


def requirements() -> tuple[str, ...]:
    """What our broker imports, in the versions that this installation has."""
    found = []
    for name in _IMPORTED:
        try:
            found.append(f"{name}=={version(name)}")
        except PackageNotFoundError:
            raise MissingPartError(f"{name} is missing: pip install {name}") from None
    return tuple(found)


def tag() -> str:
    """The name of the image, by what it is made of."""
    recipe = (_SUITE, *_PACKAGES, *requirements(), platform.machine(), SITE)
    return f"{REPOSITORY}:{hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]}"


def archive_in(cache: Path) -> Path:
    """The file system of the image, if it was built."""
    return cache / f"{tag().replace(':', '-')}.tar"


def can_be_built() -> bool:
    return os.geteuid() == 0 and shutil.which("debootstrap") is not None


def ensure(client: DockerClient, cache: Path, report: Callable[[str], None]) -> str:
    """The image's name, once Docker has it. Raises MissingPartError."""
    name = tag()
    if client.images.list(name=name):
        return name
    cache.mkdir(parents=True, exist_ok=True)
    archive = archive_in(cache)
    with _locked(cache / ".lock"):
        if not archive.exists():
            report("building the image of the nodes, once: about two minutes")
            _build(archive)
        if not client.images.list(name=name):
            repository, _, label = name.partition(":")
            client.api.import_image_from_file(
                str(archive), repository=repository, tag=label, changes=[_ENVIRONMENT]
            )
    return name


def _build(archive: Path) -> None:
    if not can_be_built():
        raise MissingPartError(
            "The image of the nodes has to be built once, which needs root and the command"
            " debootstrap: install the package debootstrap, and run the command once as root."
        )
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".building-") as scratch:
        root, fresh = Path(scratch) / "root", Path(scratch) / "root.tar"
        root.mkdir(mode=0o755)
        include = f"--include={','.join(_PACKAGES)}"
        _run("debootstrap", "--variant=minbase", include, _SUITE, str(root))
        _install_imported(root)
        for unused in _UNUSED:
            shutil.rmtree(root / unused, ignore_errors=True)
        for file in (root / _UNUSED_FILES).iterdir():
            if file.is_file():
                file.unlink()
        _run("tar", "--numeric-owner", "--create", "--file", str(fresh), "-C", str(root), ".")
        fresh.replace(archive)


def _install_imported(root: Path) -> None:
    """By this installation's pip, for the image's Python."""
    kind = (f"--python-version={_PYTHON}", "--implementation=cp", "--only-binary=:all:")
    platforms = (
        f"--platform=manylinux_2_28_{platform.machine()}",
        f"--platform=manylinux2014_{platform.machine()}",
    )
    target = f"--target={root}{SITE}"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-compile")
    _run(*pip, *kind, *platforms, target, *requirements())


def _run(*argv: str) -> None:
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        umask=0o022,  # its nodes are other users
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise MissingPartError(
            f"The image of the nodes could not be built: {Path(argv[0]).name} says"
            f" {said[-1] if said else 'nothing'!r}; look at the network and try again."
        )


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
