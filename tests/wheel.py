"""The wheel of this tree, and a Python that has nothing but it and what it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
FOLDERS = ("harness", "results", "checkers", "clusters", "workloads", "nemesis")
SHIPPED = (*FOLDERS, "neaptide", "pyproject.toml", "README.md", "LICENSE")


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """What it printed; without what makes this repository's packages known to Python."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_sources(copy: Path) -> Path:
    """What a build needs: a build leaves files beside its sources."""
    copy.mkdir()
    for name in SHIPPED:
        if (REPOSITORY / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / name, copy / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(REPOSITORY / name, copy / name)
    return copy


def build_wheel(scratch: Path) -> Path:
    copy, built = copy_sources(scratch / "copy"), scratch / "built"
    building = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", built, ".")
    run(sys.executable, "-m", "pip", *building, cwd=copy)
    [file] = built.glob("*.whl")
    return file


def install(wheel: Path, venv: Path) -> None:
    """Makes the Python. What neaptide depends on is taken from where these tests have it: no
    network is needed."""
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=venv.parent)
    paths = {"base": str(venv), "platbase": str(venv)}
    site = Path(sysconfig.get_path("purelib", vars=paths))
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "dependencies.pth").write_text("\n".join(sorted(dependencies)) + "\n")
    installing = ("install", "--no-deps", "--no-index", wheel)
    run(sys.executable, "-m", "pip", "--python", venv / "bin" / "python", *installing, cwd=venv)
