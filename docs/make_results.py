"""The pages of docs/results, from the tables in the repository; or the tables, from nothing.

    python docs/make_results.py                              every page: its table, sentences and figures
    python docs/make_results.py --check                      says what is not as the tables have it, and changes nothing
    python docs/make_results.py --pack suites/results/cause  the tables of a suite that has run, into the repository
    collapselab suite run docs/results/recipes/cause.yaml --out suites/results/cause     such a suite, from nothing

The recipes read `texts/`: tinystories/train.txt and so on, as index.md lists them. What a person wrote on a page stays;
what is between the marks is made here.
"""

import argparse
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from result_questions import PUBLISHED, PUBLISHED_MODELS, QUESTIONS, Question
from result_tables import HERE, pack, packed_tables, unpack

from collapselab.analysis.analyze import Analysis, analyze
from collapselab.core.catalogue import METRICS
from collapselab.records.tables import StoredTables, read_tables
from collapselab.report.data import load_report_data
from collapselab.report.export import write_figures
from collapselab.report.report import contents

FIGURES = HERE / "figures"
BEGIN, END = "<!-- made by docs/make_results.py -->", "<!-- end of what is made -->"


def made(name: str, question: Question, folder: Path) -> tuple[str, dict[str, bytes]]:
    """What stands between the marks of a page, and its figures by the name of the file."""
    facts = unpack(name, folder)
    analysis, tables = analyze(folder), read_tables(folder)
    drawn = contents(load_report_data(folder))
    wanted = [figure for key, figure in drawn.figures.items() if key in question.figures]
    write_figures(folder / "figures", wanted, drawn.tables, drawn.keys)
    figures = {
        f"{name}-{figure}.svg": (folder / "figures" / f"{figure}.svg").read_bytes()
        for figure in question.figures
        if (folder / "figures" / f"{figure}.svg").exists()
    }
    hours = f"{facts['training_seconds'] / 3600:.1f} hours on one core, version {facts['versions']['collapselab']}"
    recipe = next((HERE / "recipes").glob(f"{name}.*"), Path(f"{name}.yaml"))
    parts = [
        f"{facts['runs']} runs, {hours}: [recipe](recipes/{recipe.name}), "
        f"{', '.join(f'[{one}](tables/{name}/{one}.csv.gz)' for one in packed_tables(facts))}.",
        table(question, tables.runs, [asdict(row) for row in tables.rows]),
        *([contexts_table(question, tables)] if question.contexts else []),
        *([published_table(analysis, question.published)] if question.published else []),
        *(f"![{name}: {figure.removeprefix(f'{name}-').removesuffix('.svg')}](figures/{figure})" for figure in figures),
        *([effects_table(analysis)] if question.effects else []),
    ]
    return "\n\n".join(parts), figures


def table(question: Question, runs: Sequence[Mapping[str, object]], rows: Sequence[Mapping[str, object]]) -> str:
    """A row for each setting of the question: mean ± standard deviation over seeds, the null in brackets."""
    values = _values(question, pd.DataFrame(runs), pd.DataFrame(rows))
    by = [column for column in question.by if column in values]
    names = [name for name in question.metrics if name in values]
    header = [*by, "runs", "validation loss", *(name.replace("_", " ") for name in question.outcomes)]
    header += [f"`{name}`" for name in names]
    lines = _head(header)
    groups = values.groupby(by, sort=True, dropna=False) if by else [((), values)]
    for key, group in groups:
        settings = [_setting(column, value) for column, value in zip(by, key, strict=True)]
        cells = [f"{_cell(group[name])}{_null(group, name)}" for name in ("val_loss", *question.outcomes, *names)]
        lines += _rows([[*settings, str(len(group)), *cells]])
    return "\n".join(lines)


def contexts_table(question: Question, tables: StoredTables) -> str:
    """A row for each setting and length n: mean ± standard deviation over seeds, at the last layer and checkpoint."""
    models = _values(question, pd.DataFrame(tables.runs), pd.DataFrame([asdict(row) for row in tables.rows]))
    rows = pd.DataFrame([asdict(row) for row in tables.contexts if row.layer == "last"])
    counts = ["contexts", "left_out", "tokens", "coverage"]
    counted = rows[rows["metric"] == "context_within"].set_index(["run", "checkpoint", "n"])[counts]
    wide = rows.pivot(index=["run", "checkpoint", "n"], columns="metric", values="value").join(counted).reset_index()
    values = models[["run", "checkpoint", *question.by]].merge(wide, on=["run", "checkpoint"])
    names = {name: f"`{name}`" for name in question.contexts if name in values}
    names = {**{name: name.replace("_", " ") for name in counts}, **names}
    header = [*question.by, "n", *names.values()]
    lines = _head(header)
    for key, group in values.groupby([*question.by, "n"], sort=True):
        settings = [_setting(column, value) for column, value in zip(question.by, key, strict=False)]
        lines += _rows([[*settings, str(key[-1]), *(_cell(group[name]) for name in names)]])
    return "\n".join(lines)


def published_table(analysis: Analysis, subset: str) -> str:
    """A row for each metric of the paper's Table 1: its correlation with the loss here and as published."""
    lines = _head(["metric", f"r, {subset}", "95 %", "p (Holm)", "verdict", f"r of the {PUBLISHED_MODELS[subset]}"])
    for metric, published in PUBLISHED[subset].items():
        for row in analysis.tables["relate"]:
            if (row.subset, row.metric, row.transform) == (subset, metric, METRICS[metric].transform):
                low, high = _signed(row.low), _signed(row.high)
                p = "–" if row.p_holm is None else f"{row.p_holm:.2g}"
                cells = (f"`{metric}`", _signed(row.r), f"{low} to {high}", p, row.verdict, _signed(published))
                lines += _rows([cells])
    return "\n".join(lines)


def effects_table(analysis: Analysis) -> str:
    """A row for each arm: its effect on the outcome in pairs, and the verdict."""
    rows = [
        row for row in analysis.tables["effects"] if row.role == "outcome" and not row.sham and row.effect is not None
    ]
    header = ["arm", f"change of `{analysis.outcome}`", "p (Holm)", "in its sham", "verdict"]
    lines = _rows(
        [
            (
                f"`{row.label}`",
                f"{_signed(row.effect, 3)} [{_signed(row.low, 3)}, {_signed(row.high, 3)}]",
                "–" if row.p_holm is None else f"{row.p_holm:.2g}",
                _signed(row.sham_effect, 3),
                f"{row.verdict}{'; its NC metrics disagree' if row.movement == 'in conflict' else ''}",
            )
            for row in sorted(rows, key=lambda row: row.effect or 0)
        ]
    )
    told = "Effects as judged by `analyze`; *helps* and *harms* are about this loss only:"
    return "\n".join([told, "", *_head(header), *lines])


def _head(names: Sequence[str]) -> list[str]:
    return [f"|{'|'.join(names)}|", "|---" * len(names) + "|"]


def _rows(rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"|{'|'.join(cells)}|" for cells in rows]


def _signed(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:+.{digits}f}".replace("-", "−")


def _values(question: Question, runs: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """A row for each model: its settings, its validation loss and its metrics."""
    models = runs[runs["why"].isna() & runs["val_loss"].notna()].copy()
    if not question.checkpoints:
        tokens = models["tokens"].fillna(0)  # unknown of models that were not trained here
        models = models[tokens == tokens.groupby(models["run"]).transform("max")]
    models["intervene"] = models["intervene"].fillna("none") if "intervene" in models else "none"
    models["corpus"] = models["corpus"].str.partition(" ")[0] if "corpus" in models else ""
    chosen = results[(results["layer"] == "last") & (results["bin"] == "all")]
    of_split = chosen["metric"] + " (" + chosen["split"] + ")"
    chosen = chosen.assign(metric=chosen["metric"].where(chosen["split"] == "train", of_split))
    chosen = chosen[chosen["metric"].isin(question.metrics)]
    wide = chosen.pivot(index=["run", "checkpoint"], columns="metric", values="value").reset_index()
    if question.null:
        nulls = chosen.pivot(index=["run", "checkpoint"], columns="metric", values="null").add_suffix(" null")
        wide = wide.merge(nulls.dropna(axis=1, how="all").reset_index(), on=["run", "checkpoint"])
    return models.merge(wide, on=["run", "checkpoint"])


def _setting(column: str, value: object) -> str:
    if isinstance(value, float):
        return "–" if pd.isna(value) else f"{value:g}"
    return f"`{value}`" if column in ("intervene", "optimizer", "corpus", "family") else f"{value}"


def _cell(values: "pd.Series[float]") -> str:
    """Mean ± standard deviation, the mean with a digit more than the deviation needs."""
    if not values.count():
        return "–"
    mean, deviation = float(values.mean()), float(values.std()) if values.count() > 1 else 0.0
    if not deviation and mean.is_integer() and mean >= 1:
        return f"{mean:,.0f}"  # a count
    deviation = 0.0 if deviation < 1e-9 * abs(mean) else deviation  # the same number, but for rounding
    digits = 3 if not deviation else max(0, 1 - math.floor(math.log10(deviation)))
    spread = f"±{deviation:.{digits}f}" if deviation else ""
    return f"{mean:.{digits}f}{spread}".replace("-", "−")


def _null(group: pd.DataFrame, name: str) -> str:
    nulls = group.get(f"{name} null")
    return "" if nulls is None or not nulls.count() else f" ({nulls.mean():.2g})".replace("-", "−")


def make(names: list[str], *, check: bool) -> list[str]:
    """Write the pages, or with `check` none; the files that are not as the tables have them."""
    stale = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            text, figures = made(name, QUESTIONS[name], Path(folder) / name)
        page = HERE / f"{name}.md"
        old = page.read_text("utf-8") if page.exists() else f"# {QUESTIONS[name].title}\n\n{BEGIN}\n{END}\n"
        new = f"{old.partition(BEGIN)[0]}{BEGIN}\n{text}\n{END}{old.partition(END)[2]}"
        files = {page: new.encode(), **{FIGURES / figure: content for figure, content in figures.items()}}
        changed = [path for path, content in files.items() if not path.exists() or path.read_bytes() != content]
        stale += [path.relative_to(HERE).as_posix() for path in changed]
        for path in [] if check else changed:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(files[path])
    return stale


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PAGE", help=f"of {', '.join(QUESTIONS)}; all by default")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if something is not current")
    parser.add_argument("--pack", type=Path, action="append", default=[], metavar="SUITE", help="a suite's folder")
    given = parser.parse_args()
    for suite in given.pack:
        print(f"packed: {pack(suite, suite.name).relative_to(HERE)}")
    packed = [name for name in QUESTIONS if (HERE / "tables" / name).is_dir()]
    stale = make(given.names or packed, check=given.check)
    for name in stale:
        print(f"{'not current' if given.check else 'written'}: {name}")
    return 1 if given.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
