"""Class data sharing: what one Java has loaded and verified, the next maps into memory, which
halves what a start costs: of a Kafka broker, and of Spark.

An archive belongs to one Java and one class path. The first run of a version records it (JDK 17's
`jcmd`, once the run is over); without `jcmd`, all start as they always did. A Java that cannot use
an archive passes it by. Each virtual environment has a Spark of its own, and so an archive: those
that were not used for longest are removed when all are too large.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from neaptide.clusters.cache import cache_directory
from neaptide.clusters.hosts.identity import ProcessIdentity

_WITHIN_S: Final = 60.0
KEPT_BYTES_MAX: Final = 1 << 30  # Spark's has 125 MB, a Kafka's 40
RECORDING: Final = ("-XX:+RecordDynamicDumpInfo",)


def archive_of(java: str, class_path: str) -> Path:
    """Where the archive of this Java and this class path is kept."""
    binary = Path(java).resolve()
    changed = binary.stat().st_mtime_ns if binary.exists() else 0
    digest = hashlib.sha256(f"{binary}\0{changed}\0{class_path}".encode()).hexdigest()
    return cache_directory() / "shared" / f"{digest[:32]}.jsa"


def options(archive: Path) -> tuple[str, ...]:
    """What Java is started with: to use the archive, or to be able to record it."""
    try:
        os.utime(archive)  # it is used
    except FileNotFoundError:
        return RECORDING
    except OSError:  # it is somebody else's
        pass
    return (f"-XX:SharedArchiveFile={archive}",)


def prune(folder: Path, kept: Path, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
    """Remove what was not used for longest, but not `kept`, and what was never finished.

    Whoever runs with one that is removed has it in memory, and goes on. Fails at nothing.
    """
    found = []
    for path in folder.iterdir():
        with suppress(OSError):
            if path.name.startswith("."):
                _remove_unfinished(path)
            elif path.suffix == kept.suffix and path != kept:
                known = path.stat()
                found.append((known.st_mtime_ns, known.st_size, path))
    left = kept_bytes_max - kept.stat().st_size
    for _, size, path in sorted(found, reverse=True):
        left -= size
        if left < 0:
            with suppress(OSError):
                path.unlink()


def _remove_unfinished(path: Path) -> None:
    """Its name ends with the process that had it written."""
    pid = path.name.rpartition("-")[2]
    if pid.isdecimal() and ProcessIdentity.of(int(pid)) is None:
        path.unlink()


def recorder_of(java: str) -> Path:
    """The program that has a running Java write its archive, if its installation has it."""
    return Path(java).resolve().with_name("jcmd")


async def record(archive: Path, java: str, pid: int) -> bool:
    """Has a Java that runs with RECORDING write its archive; False: there is none now either."""
    jcmd = recorder_of(java)
    if archive.exists() or not jcmd.exists():
        return archive.exists()
    archive.parent.mkdir(parents=True, exist_ok=True)
    fresh = archive.with_name(f".{archive.name}-{os.getpid()}")
    process = await asyncio.create_subprocess_exec(
        str(jcmd),
        str(pid),
        "VM.cds",
        "dynamic_dump",
        f'"{fresh}"',  # Java splits its options at spaces
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_WITHIN_S):
            status = await process.wait()
    except TimeoutError:
        process.kill()
        status = await process.wait()
    if status == 0 and fresh.exists():
        fresh.replace(archive)
        prune(archive.parent, archive)
    fresh.unlink(missing_ok=True)
    return archive.exists()
