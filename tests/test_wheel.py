"""What is shipped: one name at the top, with all files, in a project with our folders' names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
FOLDERS = ("harness", "results", "checkers", "clusters", "workloads", "nemesis")
SHIPPED = (*FOLDERS, "neaptide", "pyproject.toml", "README.md", "LICENSE")
# Endings of files that are read at run time.
DATA = (".sql", ".toml", ".j2", ".html", ".css", ".js", ".svg", ".txt")
IMPORTS = f"""
import importlib, json
print(json.dumps({{
    name: importlib.import_module(name).__file__
    for each in {FOLDERS!r} for name in (each, "neaptide." + each)
}}))
"""


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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of a copy, for a build leaves files beside its sources."""
    copy = tmp_path_factory.mktemp("copy")
    for name in SHIPPED:
        if (REPOSITORY / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / name, copy / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(REPOSITORY / name, copy / name)
    built = tmp_path_factory.mktemp("built")
    building = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", built, ".")
    run(sys.executable, "-m", "pip", *building, cwd=copy)
    [file] = built.glob("*.whl")
    return file


@dataclass(frozen=True, slots=True)
class Project:
    """Somebody's, with packages of all our folders' names, and a Python with neaptide installed."""

    directory: Path
    venv: Path

    def run(self, command: str, *arguments: str) -> str:
        found = {"PYTHONPATH": str(self.directory), "NEAPTIDE_STATE": str(self.venv / "state")}
        return run(self.venv / "bin" / command, *arguments, cwd=self.directory, **found)


@pytest.fixture(scope="module")
def project(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """What neaptide depends on is taken from where these tests have it: no network is needed."""
    made = Project(tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("venv"))
    run(sys.executable, "-m", "venv", "--without-pip", made.venv, cwd=made.directory)
    paths = {"base": str(made.venv), "platbase": str(made.venv)}
    site = Path(sysconfig.get_path("purelib", vars=paths))
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "dependencies.pth").write_text("\n".join(sorted(dependencies)) + "\n")
    for name in FOLDERS:
        (made.directory / name).mkdir()
        (made.directory / name / "__init__.py").write_text('"""Theirs."""\n')
    python = made.venv / "bin" / "python"
    installing = ("install", "--no-deps", "--no-index", wheel)
    run(sys.executable, "-m", "pip", "--python", python, *installing, cwd=made.directory)
    return made


def test_nothing_but_neaptide_is_at_the_top(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"neaptide"}
    assert len(tops) == 2


def test_every_file_that_is_needed_is_in_it(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}
    files = [path for each in FOLDERS for path in (REPOSITORY / each).rglob("*") if path.is_file()]
    needed = {
        f"neaptide/{path.relative_to(REPOSITORY)}"
        for path in files
        if path.suffix in (".py", *DATA) and "__pycache__" not in path.parts
    }
    assert {Path(name).suffix for name in needed} >= {".py", ".sql", ".toml"}
    assert sorted(needed - inside) == []


def test_in_a_project_with_packages_of_our_names_both_are_found(project: Project) -> None:
    found = json.loads(project.run("python", "-c", IMPORTS))
    for name in FOLDERS:
        assert found[name] == str(project.directory / name / "__init__.py")
        assert Path(found[f"neaptide.{name}"]).is_relative_to(project.venv)


def test_the_command_works_there(project: Project) -> None:
    listed = json.loads(project.run("neaptide", "list", "--json"))
    assert "hw-truncation-loss" in json.dumps(listed)
