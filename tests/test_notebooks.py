"""The notebooks run, from the first cell to the last, offline and in an empty folder; their pages are those that ran."""

import json
from pathlib import Path
from typing import Any

import pytest
from notebooks.run import NAMES, load, page, run


@pytest.mark.notebooks
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    outputs = run(name, tmp_path)
    cells = [cell for cell in load(name)["cells"] if cell["cell_type"] == "code"]
    assert len(outputs) == len(cells) > 5
    for now, cell in zip(outputs, cells, strict=True):
        assert [kinds(output) for output in now] == [kinds(output) for output in cell["outputs"]], cell["source"]


def kinds(output: dict[str, Any]) -> list[str]:
    return list(output.get("data", [output["output_type"]]))


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_notebook_has_run_and_is_one(name: str) -> None:
    document = load(name)
    assert document["nbformat"] == 4
    assert len({cell["id"] for cell in document["cells"]}) == len(document["cells"])
    shown = [cell for cell in document["cells"] if cell["cell_type"] == "code" and cell["outputs"]]
    assert len(shown) >= 5
    assert "/tmp/" not in json.dumps(document), "a path of the machine it ran on"
    for picture in (line for line in page(name).splitlines() if line.startswith("![")):
        assert (Path(__file__).parents[1] / "docs" / picture.split("](")[1].rstrip(")")).is_file()


def test_a_cell_shows_its_last_value_and_what_it_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import notebooks.run as notebooks

    class Shown:
        def _repr_html_(self) -> str:
            return "<b>1</b>"

    monkeypatch.setattr(notebooks, "load", lambda _: {"cells": [
        {"cell_type": "markdown", "source": ["text"]},
        {"cell_type": "code", "source": ["print(1)\n", "a = 2\n", "a + 1"]},
        {"cell_type": "code", "source": ["a = 3"]},
        {"cell_type": "code", "source": ["assert a == 4"]},
    ]})  # fmt: skip
    with pytest.raises(AssertionError):
        notebooks.run("any", tmp_path)
    namespace: dict[str, Any] = {"Shown": Shown}
    first = notebooks._run_cell({"source": ["print(1)\n", "a = 2\n", "a + 1"]}, namespace)
    assert first[0]["text"] == ["1\n"]
    assert first[1]["data"] == {"text/plain": ["3"]}
    assert notebooks._run_cell({"source": ["a = 3"]}, namespace) == []
    (html,) = notebooks._run_cell({"source": ["Shown()"]}, namespace)
    assert html["data"]["text/html"] == ["<b>1</b>"]
