"""Models that were made from each other, such as base → fine-tuned → preference-tuned: what changes along the chain."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from collapselab.analysis.tokens import token_table
from collapselab.errors import ConfigError, RunError
from collapselab.measurement.similarity import cka
from collapselab.records.measurement import Results
from collapselab.records.profile import HEADLINE_METRICS
from collapselab.records.result_folder import StoredResult, kept_moments, load_moments, moments_identity

if TYPE_CHECKING:
    import altair as alt

FROM_FIRST, FROM_PREVIOUS = "CKA with the first", "CKA with the previous"
"""Rows of the table: likeness of class means but for rotation and scale; 1 if only these differ."""


@dataclass(frozen=True)
class Chain:
    """`table` has a column for each model: losses, the headline metric of each property, CKA of class means.

    `moved` are the tokens whose mean CDNV term changed most from the first model to the last, the largest change first.
    """

    table: pd.DataFrame
    moved: pd.DataFrame

    def plot(self) -> "alt.VConcatChart":
        """Return one panel for each row of the table, over the models of the chain."""
        import altair as alt

        models = list(self.table.columns)
        long = self.table.rename_axis("quantity").reset_index().melt("quantity", var_name="model").dropna()
        chart = alt.Chart(long).mark_line(point=True).encode(
            alt.X("model:N", sort=models, title=None), alt.Y("value:Q", title=None, scale=alt.Scale(zero=False))
        )  # fmt: skip
        panels = [
            chart.transform_filter(alt.datum.quantity == name).properties(title=name, width=180, height=110)
            for name in self.table.index
        ]
        rows = [alt.hconcat(*panels[start : start + 4]) for start in range(0, len(panels), 4)]
        return alt.vconcat(*rows)


def chain(results: Results) -> Chain:
    """Return what changes from model to model; all measured with `classes=True` on one corpus, in their order.

    >>> from collapselab import load_results
    >>> from collapselab.analysis.chain import chain
    >>> chain(load_results("runs/small")).table.loc["CKA with the first"].iloc[0]
    1.0
    """
    if len(results) < 2:
        raise ConfigError(f"chain: needs at least 2 models, got {len(results)}.")
    if len({result.facts["corpus_hash"] for result in results}) > 1:
        raise ConfigError(
            "chain: the models were measured on different corpora. Name one --corpus with their tokenizer."
        )
    columns: dict[str, dict[str, float | None]] = {}
    kept = []
    for number, result in enumerate(results, 1):
        scores = result.facts["splits"]["validation"]
        values = {"validation loss": scores.get("loss"), "bits per byte": scores.get("bits_per_byte")}
        values |= {metric: result.row(metric).value for metric in HEADLINE_METRICS}
        file = kept_moments(StoredResult(result, Path(result.title)))
        if file is None:
            raise RunError(f"{result.title}: its class means were not kept. Measure it with --classes.")
        kept.append(load_moments(file, moments_identity(result.facts)))
        values |= {FROM_FIRST: cka(kept[0], kept[-1]), FROM_PREVIOUS: cka(kept[-2], kept[-1]) if number > 1 else None}
        columns[result.title if result.title not in columns else f"{result.title} ({number})"] = values
    first, last = token_table(results[0]), token_table(results[-1])
    return Chain(pd.DataFrame(columns, dtype=float), first.compared(last, "cdnv"))
