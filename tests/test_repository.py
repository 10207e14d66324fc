"""What the repository says about the package agrees: version, addresses, systems, forms."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml

import agym
from tests.support.readme import BADGES, ROOT, badges

ABOUT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ADDRESSES = ABOUT["tool"]["agym"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
VERSION = re.escape(agym.__version__)
# What GitHub's forms know: the attributes of each type of field.
ATTRIBUTES = {
    "markdown": {"value"},
    "textarea": {"label", "description", "placeholder", "value", "render"},
}


def test_the_version_is_the_same_everywhere() -> None:
    changes = re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    newest = next(each for each in changes if each != "[Unreleased]")
    released = re.fullmatch(VERSION + r" (?:\(unreleased\)|- (\d{4}-\d\d-\d\d))", newest)
    assert released, newest
    assert CITATION["version"] == agym.__version__
    assert str(CITATION.get("date-released", "")) == (released[1] or "")
    assert f"Version {agym.__version__} is " in (ROOT / "README.md").read_text()


def test_the_changelog_has_the_sections_of_keep_a_changelog() -> None:
    sections = re.findall(r"^### (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Performance"]
    assert {*sections} <= {*kinds}


def test_badges_are_those_of_the_addresses() -> None:
    shown = BADGES.search((ROOT / "README.md").read_text())
    assert shown
    assert shown[0] == badges(**ADDRESSES), "run `python tests/support/readme.py badges`"
    assert CITATION.get("repository-code", "") == ADDRESSES["repository"]


def test_badges_that_need_an_address_are_absent_without_it() -> None:
    without = badges(repository="", documentation="")
    assert "pypi" not in without
    assert set(re.findall(r"https://([^/]+)", without)) == {"img.shields.io"}
    filled = badges(repository="https://a.example/agym", documentation="https://docs.example")
    assert "](https://a.example/agym/actions/workflows/tests.yml)" in filled
    assert "](https://docs.example)" in filled


def test_classifiers_agree_with_the_readme() -> None:
    text, classifiers = (ROOT / "README.md").read_text(), "\n".join(ABOUT["project"]["classifiers"])
    assert "on Linux with Python 3.11 to 3.14 ([other systems]" in text
    assert re.findall(r"Python :: (3\.\d+)", classifiers) == ["3.11", "3.12", "3.13", "3.14"]
    assert re.findall(r"Operating System :: (.*)", classifiers) == ["POSIX :: Linux"]
    assert "| maturity | **new** |" in text
    assert "Development Status :: 3 - Alpha" in classifiers


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_github_accepts_the_forms(name: str) -> None:
    form = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text())
    assert form.keys() == {"name", "description", "labels", "body"}
    fields: list[dict[str, Any]] = form["body"]
    for field in fields:
        assert field.keys() <= {"type", "id", "attributes", "validations"}
        assert field["attributes"].keys() <= ATTRIBUTES[field["type"]]
        assert field["attributes"].keys() & {"label", "value"}
        assert all(isinstance(value, str) for value in field["attributes"].values())
    names = [field["id"] for field in fields if field["type"] != "markdown"]
    assert len(names) == len({*names})
