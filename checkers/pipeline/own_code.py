"""The project's own code as one file, for executors that may have another version of it, or none.

They need Python of the same version, and the libraries that the code names.

The rule: Spark carries it, as it carries `--py-files`: this process serves it to executors when
they start, so it is here as long as this process.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).parents[2]
OF_CHECKS: Final = ("checkers", "results")
_SUFFIXES: Final = (".py", ".sql", ".toml", ".html", ".txt", ".typed")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the least that such an archive can say


def send_code(spark: SparkSession, packages: Sequence[str] = OF_CHECKS) -> None:
    """To whoever does the work of this session."""
    spark.addArtifacts(str(_packed(packages)), pyfile=True)


def _packed(packages: Sequence[str]) -> Path:
    """Named by its content, as those who have fetched it know it."""
    content = _archive(packages)
    directory = Path(tempfile.mkdtemp(prefix="neaptide-code-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    digest = hashlib.sha256(content).hexdigest()[:16]
    path = directory / f"neaptide-{'-'.join(packages)}-{digest}.zip"
    path.write_bytes(content)
    return path


def _archive(packages: Sequence[str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, ROOT / "__init__.py", "neaptide/__init__.py")
        for package in packages:
            folder = (ROOT / package).resolve()
            for file in sorted(folder.rglob("*")):
                if file.suffix in _SUFFIXES:
                    _add(archive, file, f"neaptide/{package}/{file.relative_to(folder)}")
    return content.getvalue()


def _add(archive: zipfile.ZipFile, file: Path, name: str) -> None:
    """Without its time, so that the same code is the same archive."""
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), file.read_bytes())
