"""What people read leads to where it says, can be typed, and is what the program does."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
import yaml

from neaptide.harness import reference
from neaptide.harness.cli.main import app
from neaptide.nemesis.scenario import parse_scenario
from neaptide.nemesis.steps import VERBS
from neaptide.nemesis.steps.document import Common
from tests.documents import DOCS, DOCUMENTS, ROOT, name_of

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
HERE_DOCUMENT = re.compile(r"<<'END'\n(.*?)^END$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(neaptide\s[^`]+)`")


every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)


# --- links ---------------------------------------------------------------------------------------


def anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    words = re.sub(r"[^\w\- ]", "", heading.lower())
    return words.strip().replace(" ", "-")


@every_document
def test_each_link_leads_to_a_file_and_to_a_heading_in_it(document: Path) -> None:
    text = FENCED.sub("", document.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue  # elsewhere
        name, _, part = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), f"{document.name} leads to {link}, which is not there"
        if part:
            headings = HEADING.findall(target.read_text(encoding="utf-8"))
            assert part in map(anchor, headings), f"{document.name}: no heading for {link}"


def test_each_page_is_linked_from_another() -> None:
    linked = {
        (document.parent / link.partition("#")[0]).resolve()
        for document in DOCUMENTS
        for link in LINK.findall(document.read_text(encoding="utf-8"))
        if (document.parent / link.partition("#")[0]).resolve() != document.resolve()
    }
    pages = [page for page in DOCS.rglob("*.md") if page.name != "index.md"]
    assert [page.name for page in pages if page.resolve() not in linked] == []


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    building = ("build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site"))
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *building],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    home = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "reference/commands.html" in home
    elsewhere = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)', home)
    assert elsewhere == [], "pages load nothing from elsewhere"


# --- what can be typed ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Typed:
    document: str
    line: str


def typed(document: Path) -> Iterator[Typed]:
    """Commands of neaptide in blocks for a shell, in CI files, and in sentences."""
    text = document.read_text(encoding="utf-8")
    for kind, body in BLOCK.findall(text):
        if kind in ("", "sh", "console", "yaml"):
            joined = body.replace("\\\n", " ")
            for line in joined.splitlines():
                bare = re.sub(r"^\s*(?:-\s+)?(?:run:\s+)?(?:\$\s+)?", "", line)
                if re.match(r"neaptide [a-z]", bare):
                    yield Typed(name_of(document), bare)
    for line in INLINE.findall(FENCED.sub("", text)):
        yield Typed(name_of(document), " ".join(line.split()))


PLACEHOLDER = re.compile(r"…|^(?:RUN|RUNS|FILE|FILE\.toml|WORKLOAD|COMMAND|DIR|SCENARIO)$")
NUMBERS = {"N": "1", "S": "60"}


def words_of(line: str) -> list[str]:
    """What a shell would give to the program; what stands for something else is given as a name."""
    command = re.split(r"\s(?:&|\|\||;|>)(?:\s|$)|;\s", line, maxsplit=1)[0]
    words = shlex.split(command, comments=True)[1:]
    words = [NUMBERS.get(word, word) for word in words if word != "…"]
    return ["latest" if PLACEHOLDER.search(word) else word for word in words]


ALL_TYPED = [each for document in DOCUMENTS for each in typed(document)]


@pytest.mark.parametrize("each", ALL_TYPED, ids=lambda each: f"{each.document}: {each.line[:60]}")
def test_each_command_of_a_document_is_understood(each: Typed) -> None:
    """Options and their values; nothing is run."""
    words = words_of(each.line)
    if not words or words[0] == "latest":
        return
    program = typer.main.get_command(app)
    if words[0] in {name for one in program.params for name in one.opts}:
        words = words[1:]
    if not words or words[0] == "latest":
        return
    assert words[0] in program.commands, f"no command {words[0]}"  # type: ignore[attr-defined]
    command = program.commands[words[0]]  # type: ignore[attr-defined]
    if words[1:] in ([], ["--help"]):
        return  # it is spoken of
    try:
        command.make_context(words[0], list(words[1:]))
    except Exception as error:
        problem = getattr(error, "message", "") or str(error)
        assert re.match("Missing (?:argument|parameter)", problem), f"{each.line}: {problem}"


def test_each_target_of_make_is_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for document in DOCUMENTS
        for line in re.findall(
            r"(?:^|`|\$ )make ((?:[a-z]+ ?)+?)(?:`|$| {2,}|#)",
            document.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        for target in line.split()
    }
    assert {"demo", "test", "release"} <= named
    assert named - targets == set()


# --- what can be copied --------------------------------------------------------------------------


@every_document
def test_each_block_can_be_read_by_what_it_is_for(document: Path) -> None:
    for kind, body in BLOCK.findall(document.read_text(encoding="utf-8")):
        try:
            if kind == "toml":
                check_toml(body)
            elif kind == "json":
                json.loads(body)
            elif kind == "sh":
                for scenario in HERE_DOCUMENT.findall(body):
                    check_toml(scenario)
            elif kind == "yaml":
                yaml.safe_load(body)
            elif kind == "python":
                ast.parse(body)
            else:
                assert kind in ("", "console", "text", "properties", "clojure", "sql"), kind
        except (ValueError, yaml.YAMLError, SyntaxError) as error:
            pytest.fail(f"{name_of(document)}: {error}\n{body}")


def check_toml(body: str) -> None:
    """Whole scenarios are read by their reader, steps are steps that there are."""
    read = tomllib.loads(body)
    if "title" in read and "step" in read:
        parse_scenario("copied", body, "the page")
    for step in read.get("step", []):
        [verb] = [key for key in step if key not in Common.model_fields] or ["produce"]
        assert verb in VERBS, verb


@pytest.mark.parametrize("file", ["action.yml", ".gitlab-ci.yml"])
def test_files_for_ci_can_be_read(file: str) -> None:
    path = ROOT / file
    if path.exists():
        assert yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", sorted((ROOT / ".github").rglob("*.yml")), ids=name_of)
def test_files_for_github_can_be_read(file: Path) -> None:
    assert yaml.safe_load(file.read_text(encoding="utf-8"))


# --- what is made from the code ------------------------------------------------------------------


@pytest.mark.parametrize("page", reference.PAGES)
def test_the_reference_is_what_the_code_says(page: str) -> None:
    file = DOCS / "reference" / page
    assert file.read_text(encoding="utf-8") == reference.page(page), "run `make reference`"


def test_no_page_of_the_reference_is_left_over() -> None:
    assert {file.name for file in (DOCS / "reference").iterdir()} == set(reference.PAGES)


def test_each_variable_of_the_environment_is_explained() -> None:
    between_processes = {"NEAPTIDE_NODE", "NEAPTIDE_PROCESS", "NEAPTIDE_CLIENT_SETTINGS"}
    folders = ("harness", "results", "checkers", "clusters", "workloads", "nemesis")
    code = "".join(
        file.read_text(encoding="utf-8")
        for folder in folders
        for file in (ROOT / folder).rglob("*.py")
    )
    known = set(re.findall(r"\bNEAPTIDE_[A-Z_]+\b", code)) - between_processes
    assert known <= set(reference.ENVIRONMENT)
