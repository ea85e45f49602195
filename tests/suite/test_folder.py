"""A suite's folder knows what it is, and what is damaged in it is one message."""

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from collapselab.disk import read_document
from collapselab.errors import RunError, UserError
from collapselab.suite import run as suites
from collapselab.suite.collect import collect
from collapselab.suite.folder import SuiteFolder, as_argument, open_suite
from collapselab.suite.job import perform
from collapselab.suite.plan import Entry
from collapselab.suite.recipe import Suite, shipped_recipes
from suite.recipes import opened

DEAD = 2**22 + 1
"""Larger than any process id that Linux gives."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Any]) -> tuple[Suite, SuiteFolder]:
    """A suite of two runs, one done and one failed."""
    suite, folder = opened(tmp_path_factory.mktemp("suite"), tiny, grid={"width": [8, 12]})
    first, second = suites.prepare(suite, folder).entries
    assert perform(folder, first, suite.measure).result == "done"
    folder.record_failure(second, stage="training", checkpoint="0", why="it was not to be.")
    assert not collect(folder).refused
    return suite, folder


@pytest.fixture
def copied(finished: tuple[Suite, SuiteFolder], tmp_path: Path) -> tuple[Suite, SuiteFolder, list[Entry]]:
    shutil.copytree(finished[1].path, tmp_path / "suite")
    folder = SuiteFolder(tmp_path / "suite")
    return finished[0], folder, suites.plan(finished[0], folder).entries


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("run.json", "no suite was run here"),
        ("letter.txt", "no suite was run here"),
    ],
)
def test_collect_leaves_a_folder_alone_that_is_no_suite_s(name: str, what: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("run,checkpoint\na,1\n")
    (tmp_path / "results.csv").write_text("run,checkpoint\na,1\n")
    before = files(tmp_path)
    with pytest.raises(RunError, match=f"{what}; it has no suite.json"):
        collect(SuiteFolder(tmp_path))
    assert files(tmp_path) == before
    with pytest.raises(RunError, match="no such folder"):
        collect(SuiteFolder(tmp_path / "gone"))
    assert not (tmp_path / "gone").exists()


def test_records_have_a_checksum_and_those_of_format_1_still_open(
    copied: tuple[Suite, SuiteFolder, list[Entry]],
) -> None:
    suite, folder, (_, second) = copied
    folder.record_jobs({second.name: "7_1"})
    before = folder.record(), folder.failure(second.name), folder.jobs()
    for path in ("suite.json", f"failed/{second.name}.json", "slurm/jobs.json"):
        document = read_document(folder.path / path)
        assert document.pop("format") == 2
        old = document["jobs"] if path.endswith("jobs.json") else document
        old = {key: value for key, value in old.items() if key not in ("primary", "primary_hash")}
        text = {"format": 1, **old} if path == "suite.json" else old
        (folder.path / path).write_text(json.dumps(text))
    after = folder.record(), folder.failure(second.name), folder.jobs()
    assert without_format(after[0]) == without_format(before[0])
    assert without_format(after[1]) == without_format(before[1])
    assert after[2] == before[2]
    folder.begin(suite)
    assert read_document(folder.path / "suite.json")["format"] == 2
    stamp = (folder.path / "suite.json").stat().st_mtime_ns
    folder.begin(suite)
    assert (folder.path / "suite.json").stat().st_mtime_ns == stamp, "a record that says the same is not written again"


def without_format(record: Any) -> dict[str, Any]:
    found: dict[str, Any] = record.model_dump(exclude={"format"})
    return found


@pytest.mark.parametrize("name", ["suite.json", "failed/RUN.json", "slurm/jobs.json"])
def test_every_edited_value_of_a_record_is_noticed(name: str, copied: tuple[Suite, SuiteFolder, list[Entry]]) -> None:
    _, folder, (_, second) = copied
    folder.record_jobs({second.name: "7_1"})
    path = folder.path / name.replace("RUN", second.name)
    document = json.loads(path.read_text())
    for key in document:
        path.write_text(json.dumps({**document, key: "x" if document[key] != "x" else "y"}))
        assert noticed(folder, second.name), key
        path.write_text(json.dumps({other: value for other, value in document.items() if other != key}))
        assert noticed(folder, second.name), key


def noticed(folder: SuiteFolder, run: str) -> bool:
    """Whether something in the folder is refused."""
    try:
        folder.record(), folder.jobs(), folder.failure(run)
    except UserError:
        return True
    return False


NASTY: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"format": 1, "name": "a',
    "wrong types": b'{"format": 1, "name": 3, "scale": [], "recipe": "x", "run": 3, "why": {}, "jobs": 1}',
    "another format": b'{"format": 99}',
    "bytes": bytes(range(256)),
    "a recipe that is none": b'{"format": 1, "name": "a", "scale": "full", "recipe": {"question": 3, "grid": 1}}',
    "a scale that is none": b'{"format": 1, "name": "a", "scale": "vast", "recipe": {}}',
    "a corpus outside": b'{"format": 1, "name": "a", "scale": "full", "recipe": {"question": "Why?", "corpora": '
    b'{"../../evil": {"source": "storyworld"}}, "base": {"width": 8, "depth": 1}}}',
}


@pytest.mark.parametrize("content", NASTY.values(), ids=NASTY)
def test_a_damaged_record_is_one_message(content: bytes, copied: tuple[Suite, SuiteFolder, list[Entry]]) -> None:
    suite, folder, (_, second) = copied
    whole = (folder.path / "suite.json").read_bytes()
    (folder.path / "suite.json").write_bytes(content)
    with pytest.raises(UserError):
        folder.suite()
    (folder.path / "suite.json").write_bytes(whole)
    (folder.path / "slurm").mkdir()
    (folder.path / "slurm" / "jobs.json").write_bytes(content)
    with pytest.raises(UserError):
        folder.jobs()
    (folder.path / "failed" / f"{second.name}.json").write_bytes(content)
    (folder.run(second.name)).mkdir()
    (folder.run(second.name) / "log.jsonl").write_bytes(content + b"\n")
    with pytest.raises(UserError, match=second.name):
        suites.status(suite, folder)
    (message,) = collect(folder).refused
    assert second.name in message


def broken(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The document with each of its values replaced or left out, one at a time."""
    values: list[Any] = [None, -1, "x", [], {}, 1e308 * 10, 10**400, True]
    changes = [(key, {**document, key: value}) for key in document for value in values]
    return changes + [(key, {k: v for k, v in document.items() if k != key}) for key in document]


@pytest.mark.parametrize("name", ["run.json", "checkpoints/0/training.json", "measure/0.json"])
def test_a_run_with_foreign_records_never_breaks_the_table(
    name: str, copied: tuple[Suite, SuiteFolder, list[Entry]]
) -> None:
    suite, folder, (first, second) = copied
    path = folder.run(first.name) / name
    document = json.loads(path.read_text())
    refused = 0
    for key, changed in broken(document):
        path.write_text(json.dumps(changed))
        try:
            tables = collect(folder)
        except UserError as error:
            pytest.fail(f"{key}: {error}")
        refused += bool(tables.refused)
        assert {row["run"] for row in tables.runs} >= {second.name}
        assert {row.run for row in tables.results} <= {row["run"] for row in tables.runs}
        suites.status(suite, folder)
    assert refused


LOG_LINES = ["3", "null", "[]", '"loss"', '{"loss": 1}', '{"step": 3, "lo']


@pytest.mark.parametrize("line", LOG_LINES)
def test_a_log_with_foreign_lines_is_shown_as_far_as_it_can_be(
    line: str, copied: tuple[Suite, SuiteFolder, list[Entry]]
) -> None:
    from collapselab.suite.status import status_table, wide_console

    suite, folder, (_, second) = copied
    folder.forget_failure(second.name)
    folder.run(second.name).mkdir()
    (folder.run(second.name) / "log.jsonl").write_text(
        '{"step": 2, "loss": 2.5, "tokens": 248, "tokens_per_second": 10.0}\n' + line + "\n"
    )
    with folder.locked(second.name):
        states = suites.status(suite, folder)
    assert states[1].stage == "training"
    assert states[1].step in (2, 3)
    with wide_console().capture():
        wide_console().print(status_table(states))


@pytest.mark.parametrize("leftover", [f".7.safetensors.{DEAD}.tmp", f".7.safetensors.HOST-{DEAD}.tmp"])
def test_what_a_killed_process_left_of_a_state_does_not_fail_the_run(
    leftover: str, copied: tuple[Suite, SuiteFolder, list[Entry]]
) -> None:
    from collapselab import disk

    suite, folder, (_, second) = copied
    folder.forget_failure(second.name)
    state = folder.run(second.name) / "state"
    state.mkdir(parents=True)
    (folder.run(second.name) / ".lock").touch()
    (state / leftover.replace("HOST", disk._HOST)).write_bytes(b"half")
    outcome = perform(folder, second, suite.measure)
    assert (outcome.result, outcome.why) == ("done", None)
    assert not state.exists()


@pytest.mark.parametrize(("umask", "mode", "folders"), [(0o002, 0o664, 0o775), (0o077, 0o600, 0o700)])
def test_every_file_of_a_suite_has_the_permissions_that_the_umask_gives(
    umask: int, mode: int, folders: int, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    before = os.umask(umask)
    try:  # in this process: those of a suite inherit the umask of the one that starts them
        suite, folder = opened(tmp_path, tiny, grid={"width": [8]}, base=tiny["base"] | {"steps": 2})
        (entry,) = suites.prepare(suite, folder).entries
        assert perform(folder, entry, suite.measure).result == "done"
        folder.record_failure(entry, stage="training", checkpoint="0", why="it was not to be.")
        folder.record_jobs({entry.name: "1"})
        collect(folder)
    finally:
        os.umask(before)
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in folder.path.rglob("*")}
    assert {path.name for path in found} >= {"model.safetensors", "suite.json", "runs.csv", ".lock"}
    wrong = {str(path): oct(got) for path, got in found.items() if got != (folders if path.is_dir() else mode)}
    assert wrong == {}


@pytest.fixture
def beside_demo(
    copied: tuple[Suite, SuiteFolder, list[Entry]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Suite:
    """A working directory with the folder of a suite that has the name of a recipe."""
    (tmp_path / "suite").rename(tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    return copied[0]


def test_the_name_of_a_shipped_recipe_means_the_recipe_whatever_is_beside(beside_demo: Suite) -> None:
    assert "demo" in shipped_recipes()
    suite, folder = open_suite("demo", scale="small")
    assert (suite.name, folder.path) == ("demo", Path("suites/demo-small"))
    for name in ("./demo", "demo/", Path("demo"), Path("demo").absolute()):
        suite, folder = open_suite(name)
        assert suite == beside_demo
        assert folder.path == Path(name)


@pytest.mark.parametrize(
    ("path", "typed"), [("demo", "./demo"), ("a/demo", "a/demo"), ("/demo", "/demo"), ("my demo", "'./my demo'")]
)
def test_a_folder_is_shown_as_one_types_it(path: str, typed: str) -> None:
    assert as_argument(Path(path)) == typed
