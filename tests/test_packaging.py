"""What an installer, a package index and CI are told: versions that fit, pictures that show, targets that exist."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from collapselab.trackers import TRACKERS

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
NEEDED = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
REPOSITORY = "https://repository.example"
ANY_TORCH = {"torch"}
"""Installed as the machine needs it: with or without a GPU."""


def pins(name: str) -> dict[str, Version]:
    lines = (line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#"))
    pairs = (line.split("==") for line in lines)
    return {name.lower().replace("_", "-"): Version(version) for name, version in pairs}


def lowest(needed: Requirement) -> Version:
    (bound,) = [Version(one.version) for one in needed.specifier if one.operator == ">="]
    return bound


def test_the_lowest_versions_are_those_of_the_package() -> None:
    pinned = pins("constraints-lowest.txt")
    installed = re.search(r"constraints-lowest.txt .*\[([a-z,]+)\]", (ROOT / "Makefile").read_text())
    assert installed is not None
    extras = [PROJECT["project"]["optional-dependencies"][extra] for extra in installed[1].split(",")]
    needed = NEEDED + [Requirement(text) for extra in extras for text in extra]
    assert len(needed) > len(NEEDED) > 15
    assert {one.name.lower().replace("_", "-") for one in needed} - ANY_TORCH == pinned.keys()
    for one in needed:
        if one.name not in ANY_TORCH:
            assert one.specifier.contains(pinned[one.name.lower().replace("_", "-")]), one.name
            assert str(pinned[one.name.lower()]).startswith(str(lowest(one))), one.name


def test_ci_tries_the_lowest_and_the_newest_torch() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    (torch,) = [one for one in NEEDED if one.name == "torch"]
    assert jobs["lowest"]["steps"][-1]["run"] == f"make test-lowest TORCH=torch=={lowest(torch)}.0"
    assert jobs["newest"]["steps"][-1]["run"] == "make test-newest TORCH=torch"
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        assert yaml.safe_load(path.read_text())["env"] == {"PIP_EXTRA_INDEX_URL": "${{ vars.TORCH_INDEX }}"}, path.name


def test_the_tested_versions_are_allowed() -> None:
    pinned = pins("constraints.txt")
    for one in NEEDED:
        assert one.specifier.contains(pinned[one.name.lower().replace("_", "-")]), one.name


def test_every_tracker_has_an_extra_of_its_name() -> None:
    assert set(TRACKERS) <= PROJECT["project"]["optional-dependencies"].keys()


def test_the_wheel_contains_the_data_files_of_the_package() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/collapselab"]}, "no include or exclude: hatchling takes every file of the folder"
    assert (ROOT / "src" / "collapselab" / "corpus" / "storyworld.yaml").stat().st_size > 100_000


def test_versions_of_python_are_those_that_are_tested() -> None:
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    assert named == tests["jobs"]["tests"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]


def test_pictures_and_links_of_the_readme_are_whole_on_a_package_index() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert re.search(r"\]\((?!https?:|#)", text), "there is something to replace"
    for change in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    assert re.findall(r"\]\((?!https?:|#)[^)]*\)", text) == []
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert len(pictures) == 3
    assert all(picture.startswith(f"{REPOSITORY}/raw/main/docs/") for picture in pictures)


def test_the_project_has_one_address_and_the_release_puts_the_real_one_in_its_place(tmp_path: Path) -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    urls = PROJECT["project"]["urls"]
    assert {url.split("/")[2] for url in urls.values()} == {"repository.example", "documentation.example"}
    (tmp_path / "pyproject.toml").write_text(text, "utf-8")
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    (script,) = [step["run"] for step in release["jobs"]["release"]["steps"] if "addresses" in step.get("name", "")]
    known = {"SERVER_URL": "https://github.com", "REPOSITORY": "me/lab", "REPOSITORY_OWNER": "me"}
    environment = {**os.environ, **{f"GITHUB_{name}": value for name, value in known.items()}}
    subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment, check=True)
    changed = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    assert changed["Issues"] == "https://github.com/me/lab/issues"
    assert changed["Documentation"] == "https://me.github.io/lab"
    assert text.count(REPOSITORY) == 5
    other = [*ROOT.glob("*.md"), *ROOT.glob("*.cff"), *(ROOT / "docs").rglob("*.md"), ROOT / "mkdocs.yml"]
    assert [path.name for path in other if REPOSITORY in path.read_text("utf-8")] == ["CONTRIBUTING.md"]


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_workflows_call_targets_that_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    jobs = yaml.safe_load(path.read_text())["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    called = {target for command in commands for target in re.findall(r"\bmake ([a-z-]+)", command)}
    assert called
    assert called <= targets


def test_templates_and_hooks_are_yaml() -> None:
    files = [*(ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"), ROOT / ".pre-commit-config.yaml"]
    assert len(files) == 3
    for file in files:
        assert yaml.safe_load(file.read_text())
