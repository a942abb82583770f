"""The project's own code as one file, for executors that may have another version of it, or none.

They need Python of the same version, and the libraries that the code names.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from neaptide.checkers.limits import is_elsewhere

ROOT: Final = Path(__file__).parent.parent
OF_CHECKS: Final = ("checkers", "results")
_SUFFIXES: Final = (".py", ".toml", ".html", ".typed")


def send_code(spark: SparkSession, packages: Sequence[str] = OF_CHECKS) -> None:
    """To whoever does the work of this session."""
    if is_elsewhere(spark):
        with tempfile.TemporaryDirectory() as directory:
            spark.addArtifacts(str(_packed(Path(directory), packages)), pyfile=True)
    else:  # executors fetch it when they start: it stays as long as the session
        kept = Path(spark.sparkContext._temp_dir)
        spark.addArtifacts(str(_packed(kept, packages)), pyfile=True)


def _packed(directory: Path, packages: Sequence[str]) -> Path:
    path = directory / f"neaptide-{'-'.join(packages)}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(ROOT / "__init__.py", "neaptide/__init__.py")
        for package in packages:
            for file in sorted((ROOT / package).resolve().rglob("*")):
                if file.suffix in _SUFFIXES:
                    archive.write(file, f"neaptide/{file.relative_to(ROOT.resolve().parent)}")
    return path
