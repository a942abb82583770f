"""What is shipped: one name at the top, with all files, in a project with our folders' names."""

from __future__ import annotations

import json
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.wheel import FOLDERS, REPOSITORY, build_wheel, copy_sources, install, run

pytestmark = pytest.mark.slow

# Endings of files that are read at run time.
DATA = (".sql", ".toml", ".j2", ".html", ".css", ".js", ".svg", ".txt", ".java")
IMPORTS = f"""
import importlib, json
print(json.dumps({{
    name: importlib.import_module(name).__file__
    for each in {FOLDERS!r} for name in (each, "neaptide." + each)
}}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


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
    made = Project(tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("python") / "venv")
    for name in FOLDERS:
        (made.directory / name).mkdir()
        (made.directory / name / "__init__.py").write_text('"""Theirs."""\n')
    install(wheel, made.venv)
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


def test_the_sdist_of_a_release_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """As `make release` does: the wheel is built of the sdist."""
    sources = copy_sources(tmp_path / "copy")
    building = ("build", "--no-isolation", "--outdir", tmp_path / "dist", ".")
    run(sys.executable, "-m", *building, cwd=sources)
    [sdist], [built] = (tmp_path / "dist").glob("*.tar.gz"), (tmp_path / "dist").glob("*.whl")
    assert sdist.name == built.name.partition("-py3")[0] + ".tar.gz"
    assert sorted(zipfile.ZipFile(built).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())
