"""The README and the pages stay true: their blocks run, the commands are the two that CI runs."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from importlib.metadata import metadata
from pathlib import Path

import pytest
import yaml

import agym
from agym.api.options.options import OPTION_NAMES
from agym.core.backends.options import SPECS
from tests.support.patience import patience
from tests.support.readme import ROOT, Block, blocks, commands, pages

PYTHON = [
    block
    for page in pages()
    for block in blocks(page)
    if block.language == "python" and not block.apart
]


@pytest.mark.once
@pytest.mark.parametrize("block", PYTHON, ids=lambda block: f"{block.page}:{block.line}")
def test_python_blocks_run(block: Block, tmp_path: Path) -> None:
    if block.needs is not None and importlib.util.find_spec(block.needs) is None:
        pytest.skip(f"this block needs {block.needs}: install the extra that brings it")
    script = tmp_path / "block.py"
    script.write_text(block.code)
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True,
        timeout=patience(6), cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Recovered faults are logged, and named.
    logged = re.sub(
        r"^.*; (restarting|replaying) environment.*$", "", done.stderr, flags=re.MULTILINE
    )
    assert "Error" not in logged


def test_there_are_exactly_two_set_up_commands_and_ci_runs_them() -> None:
    setup, tests = commands()
    assert setup.endswith("agym demo")
    assert tests.endswith("pytest -q -n 2 -m core")
    before, then, _ = (ROOT / ".ci/run").read_text().partition("readme.py tests")
    assert then
    assert "readme.py setup" in before
    assert "pip install" not in before, "a stranger gives the second command right after the first"


def test_the_pythons_that_agym_claims_to_run_on_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    assert jobs["core"]["strategy"]["matrix"]["python"] == claimed
    assert f"for version in {' '.join(claimed[:0:-1])};" in (ROOT / ".ci/pythons").read_text()


@pytest.mark.full
def test_the_table_of_errors_has_their_messages() -> None:
    page = "docs/reference/errors.md"
    told = "torch is not installed\n"  # where it is not: tests/cli/test_missing_packages.py
    told += "backend='process' needs Linux or macOS\n"  # that is tests/core/_system/test_windows.py
    for block in blocks(page):
        if block.language == "python":
            command = [sys.executable, "-c", block.code]
            told += subprocess.run(command, capture_output=True, text=True, check=True).stdout
    messages = re.findall(r"^\| `(.*?)` \| `\w+` \|", (ROOT / page).read_text(), re.MULTILINE)
    assert len(messages) > 15
    for message in messages:
        assert message.replace("4711", "") in re.sub(r"(?<=pid )\d+", "", told), message


def test_blocks_that_run_apart_are_run() -> None:
    ecosystem, adapters = ((ROOT / ".ci" / name).read_text() for name in ("ecosystem", "adapters"))
    run = re.findall(r"\[(\w+)\]=\"", ecosystem)
    run += re.findall(r"^libraries=\"(.*)\"", adapters, re.MULTILINE)[0].split()
    found = [block for page in pages() for block in blocks(page)]
    packages = {block.needs for block in found if block.apart}
    assert packages == {*run}


def test_a_table_lists_every_backend() -> None:
    text = (ROOT / "docs/start/backends.md").read_text().partition("## All backends\n")[2]
    assert sorted(re.findall(r'^\| `"(\w+)"`', text, re.MULTILINE)) == sorted(SPECS)


def test_tables_list_every_option_of_make_and_of_its_objects() -> None:
    text = (ROOT / "docs/reference/options.md").read_text()
    found = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(found) == sorted(OPTION_NAMES)
    objects = {f"backends.{spec.__name__}": spec for spec in SPECS.values()}
    objects |= {"FaultPolicy": agym.FaultPolicy, "Recycle": agym.Recycle}
    found = re.findall(r"^\| `agym\.([\w.]+)` \| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(found) == sorted(
        (name, field.name)
        for name, kind in objects.items()
        for field in fields(kind)
        if field.name != "workers"  # which every backend has, as make has
    )


@pytest.mark.parametrize("page", pages())
def test_files_that_pages_name_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    for name in re.findall(r"`((?:examples|tests|agym)/[\w/.]+)(?![\w/.]|-v\d)", text):
        assert (ROOT / name).exists(), name
    links = re.findall(r"\]\((?!http)([\w/.-]*)(?:#([\w-]+))?\)", text)
    pictures = re.findall(r"\{(?:figure|image)\} (\S+)", text)
    for link, anchor in [*links, *((picture, "") for picture in pictures)]:
        target = (ROOT / page).parent.joinpath(link) if link else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub and MyST give the headings of a page."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-") for each in headings}


def test_the_edits_of_cleanrl_in_the_readme_are_those_of_the_patch() -> None:
    """The README leaves context out, and nothing else; .ci/ecosystem applies the patch."""
    patch = (ROOT / "docs/migrate/cleanrl_ppo.diff").read_text().splitlines()
    (shown,) = (
        block.code.splitlines()
        for block in blocks()
        if block.language == "diff" and "AgymVectorEnv" in block.code
    )
    hunks = [line for line in patch if not line.startswith(("---", "+++", "@@"))]
    patched, edits = ([line for line in lines if line[0] in "+-"] for lines in (hunks, shown))
    assert edits == patched
    assert {line for line in shown if line[0] == " "} <= {*hunks}


def test_pages_name_every_public_name_and_error() -> None:
    text = "".join((ROOT / page).read_text() for page in pages())
    reference = "".join(
        (ROOT / page).read_text() for page in pages() if page.startswith("docs/reference/")
    )
    for name in agym.__all__:
        assert re.search(rf"\b{name}\b", text), name
        if name not in ("adapters", "backends", "sb3", "snapshot_codecs"):
            assert re.search(rf"^\.\. auto\w+:: {name}(\(\))?$", reference, re.MULTILINE), name


def test_the_table_of_the_four_ways_stands_where_one_is_introduced() -> None:
    table = (ROOT / "docs/start/four_ways.md").read_text()
    assert table in (ROOT / "README.md").read_text()
    for page in (
        "index", "start/quickstart", "start/concepts", "howto/making", "reference/making",
        "tutorials/stable_baselines3", "migrate/gymnasium", "migrate/stable_baselines3",
        "migrate/envpool", "migrate/ray_actors",
    ):  # fmt: skip
        assert "four_ways.md\n```" in (ROOT / f"docs/{page}.md").read_text(), page


def test_packages_and_extras_that_are_named_exist() -> None:
    """Nobody is sent to somebody else's package."""
    wrong = re.compile(r"pip install (-\w+ )*[\"']?agym(?!-envs)\b")
    extras = set(metadata("agym-envs").get_all("Provides-Extra"))
    patterns = "*.md", "docs/**/*.md", "examples/**/*.py", "examples/**/*.yaml", "agym/**/*.py"
    for path in (path for pattern in patterns for path in ROOT.glob(pattern)):
        text = path.read_text()
        assert not wrong.search(text), path
        for named in re.findall(r"(?:agym-envs\\?|-e '\.)\[([\w,-]+)\]", text):
            assert extras.issuperset(named.split(",")), path


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 250
