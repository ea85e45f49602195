"""analyze: from the two tables of a suite to statements about them.

<directory>/analysis/relate.csv       every metric against the outcome
                     controls.csv     the same beyond scale and training, and among seeds alone
                     trends.csv       along width, depth and training; what regularisation does
                     prediction.csv   beside a scaling law, on architectures it has not seen
                     diagnosis.csv    signatures of single runs
                     summary.json     what all that allows to say, in sentences
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any, final

from collapselab.analysis.controls import Control, controls
from collapselab.analysis.diagnosis import Finding, diagnose
from collapselab.analysis.models import load
from collapselab.analysis.prediction import Prediction, predictions
from collapselab.analysis.relate import Relation, relate
from collapselab.analysis.summary import Sentence, summarise
from collapselab.analysis.trends import Trend, trends
from collapselab.disk import written_whole
from collapselab.errors import ConfigError
from collapselab.progress import progress
from collapselab.records.tables import write_table

FEWEST_PERMUTATIONS = 99
"""Fewer could not reach 0.05 after any correction."""


@final
@dataclass(frozen=True)
class Analysis:
    """All that `analyze` found; `to_json()` is the whole of it."""

    directory: Path
    outcome: str
    permutations: int
    seed: int
    models: int
    relations: list[Relation]
    controls: list[Control]
    trends: list[Trend]
    predictions: list[Prediction]
    findings: list[Finding]
    sentences: list[Sentence]

    def to_json(self) -> dict[str, Any]:
        """The summary and every table, ready for `json.dumps`."""
        tables = {name: [asdict(row) for row in rows] for name, (_, rows) in self.tables.items()}
        return {**self.summary(), **tables}

    def summary(self) -> dict[str, Any]:
        """What `summary.json` holds."""
        about = {name: getattr(self, name) for name in ("outcome", "models", "permutations", "seed")}
        return {"directory": str(self.directory), **about, "sentences": [asdict(row) for row in self.sentences]}

    @property
    def tables(self) -> dict[str, tuple[type, Sequence[Any]]]:
        return {
            "relate": (Relation, self.relations),
            "controls": (Control, self.controls),
            "trends": (Trend, self.trends),
            "prediction": (Prediction, self.predictions),
            "diagnosis": (Finding, self.findings),
        }

    def write(self, folder: Path) -> None:
        """Write the tables and the summary, each whole or not at all."""
        for name, (kind, rows) in self.tables.items():
            write_table(folder / f"{name}.csv", [field.name for field in fields(kind)], map(astuple, rows))
        with written_whole(folder / "summary.json") as temporary:
            temporary.write_text(json.dumps(self.summary(), ensure_ascii=False, indent=1), encoding="utf-8")


def analyze(directory: str | Path, *, outcome: str = "val_loss", permutations: int = 10_000, seed: int = 0) -> Analysis:
    """Relate every metric of `directory` to the outcome, in scale and apart from scale, and write what was found.

    The same tables, permutations and seed give the same numbers.
    """
    if permutations < FEWEST_PERMUTATIONS:
        raise ConfigError(f"permutations: {permutations}; a test needs {FEWEST_PERMUTATIONS} or more.")
    if seed < 0:
        raise ConfigError(f"seed: {seed} is below 0.")
    directory = Path(directory)
    models = load(directory, outcome=outcome)
    with progress("analysing", total=5, unit="tables") as advance:
        relations = relate(models, permutations=permutations, seed=seed)
        advance(1)
        beyond = controls(models, relations)
        advance(1)
        along = trends(models)
        advance(1)
        foreseen = predictions(models, seed=seed)
        advance(1)
        findings = diagnose(models)
        advance(1)
    sentences = summarise(models, relations, beyond, along, foreseen, findings)
    analysis = Analysis(
        directory, outcome, permutations, seed, len(models.known),
        relations, beyond, along, foreseen, findings, sentences,
    )  # fmt: skip
    analysis.write(directory / "analysis")
    return analysis
