"""Run the notebooks without Jupyter, keep their outputs, and show them as pages.

    python docs/notebooks/run.py            # run all, and write the outputs into them
    python docs/notebooks/run.py measure    # one of them
    python docs/notebooks/run.py --only-run measure

A cell is run as IPython would: its statements, and then the value of its last expression is shown.
`page` makes the Markdown that the documentation shows from a notebook and its stored outputs.
"""

import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NAMES = ("measure", "suite", "intervention")
ROWS = 6
"""Rows of a table that the page shows; the notebook has all."""
IMAGES = HERE.parent / "images" / "notebooks"

Cell = dict[str, Any]


def load(name: str) -> dict[str, Any]:
    """A notebook as nbformat 4 stores it."""
    document: dict[str, Any] = json.loads((HERE / f"{name}.ipynb").read_text("utf-8"))
    return document


def run(name: str, folder: Path) -> list[list[dict[str, Any]]]:
    """The outputs of every code cell, run in order in this folder; an error of a cell is raised as it is."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        return [_run_cell(cell, namespace) for cell in load(name)["cells"] if cell["cell_type"] == "code"]


def _run_cell(cell: Cell, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    tree = ast.parse("".join(cell["source"]))
    last = tree.body[-1] if tree.body else None
    last = last if isinstance(last, ast.Expr) else None
    if last is not None:
        tree.body.pop()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), namespace)
        value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {kind: _lines(text) for kind, text in shown(value)}
        outputs.append({"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data})
    return outputs


def shown(value: object) -> Iterator[tuple[str, str]]:
    """The forms in which a value is shown, the richest first."""
    import altair as alt

    if isinstance(value, alt.TopLevelMixin):
        yield "image/svg+xml", _svg(value)
    elif hasattr(value, "_repr_html_"):
        yield "text/html", str(value._repr_html_())
    text = type(value).__name__ if isinstance(value, alt.TopLevelMixin) else repr(value)
    yield "text/plain", text


def _svg(chart: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chart.svg"
        chart.save(str(path))
        return path.read_text("utf-8")


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def store(name: str) -> None:
    """Run a notebook in an empty folder, and write it with its outputs, and its pictures for the documentation."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = run(name, Path(folder))
    document, number = load(name), 0
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = outputs[number], number + 1
            for output in outputs[number]:
                if "execution_count" in output:
                    output["execution_count"] = number + 1
            number += 1
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    (HERE / f"{name}.ipynb").write_text(text, "utf-8")
    IMAGES.mkdir(parents=True, exist_ok=True)
    for picture, svg in _pictures(name, document):
        (IMAGES / picture).write_text(svg, "utf-8")


def _pictures(name: str, document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for number, cell in enumerate(document["cells"]):
        for output in cell.get("outputs", []):
            if "image/svg+xml" in output.get("data", {}):
                yield f"{name}-{number}.svg", "".join(output["data"]["image/svg+xml"])


def page(name: str) -> str:
    """The notebook as Markdown: text, code, and what each cell showed."""
    parts = []
    for number, cell in enumerate(load(name)["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```py\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/svg+xml" in data:
                parts.append(f"![{_title(source)}](images/notebooks/{name}-{number}.svg)")
            elif "text/html" in data:
                parts.append(f'<div class="shown">{_shortened("".join(data["text/html"]))}</div>')
            else:
                text = "".join(output.get("text") or data.get("text/plain", []))
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts)


def _shortened(html: str) -> str:
    """HTML without style, with the first rows of each table and the first item of each list."""
    html = re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
    html = re.sub(r">\s+<", "><", html)
    rows = re.compile(rf"(<tbody>(?:<tr>.*?</tr>){{{ROWS}}})(<tr>.*?)(</tbody>)", re.DOTALL)
    html = rows.sub(r'\1<tr><td colspan="99">…</td></tr>\3', html)
    return re.sub(r"(<ul><li>[^<]*</li>).*?</ul>", r"\1</ul>", html).strip()


def _title(source: str) -> str:
    return source.strip().splitlines()[-1].replace("[", "(").replace("]", ")")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    only_run = "--only-run" in sys.argv
    for chosen in [name for name in sys.argv[1:] if name != "--only-run"] or NAMES:
        if only_run:
            with tempfile.TemporaryDirectory() as folder:
                print(f"{chosen}: {len(run(chosen, Path(folder))):,} cells ran.")
        else:
            store(chosen)
