"""The image of `make image`: neaptide in a container plays a scenario and keeps the run outside."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from neaptide.clusters.cache import cache_directory
from neaptide.clusters.hosts import docker_image
from tests.wheel import REPOSITORY, build_wheel

pytestmark = [pytest.mark.live, pytest.mark.spark, pytest.mark.needs("docker")]

# The image of nodes has Java and Python. pip is of this Python: no registry is asked.
# The libraries are too, where they are compiled for the image's Python. Elsewhere pip gets them.
_SAME_PYTHON = sys.version_info[:2] == (3, 11)
_BASE = """\
FROM {base}
COPY pip /opt/pip
RUN printf '#!/bin/sh\\nPYTHONPATH=/opt exec python3 -m pip "$@"\\n' > /usr/local/bin/pip3 \\
    && chmod +x /usr/local/bin/pip3
"""


def docker(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    words = ["docker", *(str(word) for word in arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """As `make image` builds it, of this tree."""
    import docker as docker_library

    scratch = tmp_path_factory.mktemp("image")
    nodes = docker_image.ensure(
        docker_library.from_env(), cache_directory() / "docker", lambda line: None
    )
    mark = uuid.uuid4().hex[:12]
    base, name = f"neaptide-test-base:{mark}", f"neaptide-test:{mark}"
    context = scratch / "base"
    context.mkdir()
    shutil.copytree(Path(sysconfig.get_path("purelib")) / "pip", context / "pip")
    (context / "Dockerfile").write_text(_BASE.format(base=nodes))
    release = scratch / "release"
    (release / "dist").mkdir(parents=True)
    for file in ("Dockerfile", ".dockerignore"):
        shutil.copy(REPOSITORY / file, release / file)
    shutil.copy(build_wheel(scratch), release / "dist")
    try:
        docker("build", "--quiet", "--tag", base, context)
        flags = "--no-deps" if _SAME_PYTHON else ""
        arguments = ("--build-arg", f"BASE={base}", "--build-arg", f"PIP_FLAGS={flags}")
        docker("build", "--quiet", *arguments, "--tag", name, release)
        yield name
    finally:
        docker("rmi", "--force", name, base, check=False)


@pytest.mark.proof
def test_neaptide_in_a_container_plays_a_scenario(image: str, tmp_path: Path) -> None:
    site = sysconfig.get_path("purelib")
    run = ("run", "--rm", "--init", "--volume", f"{tmp_path}:/work/runs")
    mounted = ("--volume", f"{site}:/site:ro", "--env", "PYTHONPATH=/opt/neaptide:/site")
    libraries = mounted if _SAME_PYTHON else ()
    command = ("repro", "acks-1-loss", "--system", "neaptide:2.1", "--json")
    done = docker(*run, *libraries, image, *command, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [result] = json.loads(done.stdout)["results"]
    assert (result["observed"], result["agrees"]) == ("lost", True)
    assert result["run"], result
    kept = tmp_path / Path(result["run"]).name
    assert (kept / "report.html").exists()
