"""Models: one row for every run and checkpoint, its settings, its outcome and its metrics side by side.

Three labels say what is held fixed. The *architecture* is family, depth and width. The *regime* is every other setting
that varies within an architecture: epochs, checkpoint, decay and whatever else a suite varies; a setting that follows
from the architecture, as the batch size does in the paper, is no part of it. A *cell* is both together: models of one
cell differ in nothing but their seed.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple
from urllib.parse import unquote

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collapselab.analysis.verdict import Cause, Reason, Verdict
from collapselab.core.catalogue import CONTEXT_METRICS, METRICS, Direction, Ideal, Transform, ideal_at
from collapselab.errors import ConfigError, RunError, did_you_mean
from collapselab.records import outcomes
from collapselab.records.outcomes import BITS_PER_BYTE, COST, ON, SCORE, ContextColumn, context_columns
from collapselab.records.table import Cell
from collapselab.records.tables import RUNS, ContextRow, Row, Run

Floats = NDArray[np.float64]
BETTER = {"val_loss": -1, "train_loss": -1, "perplexity": -1, "val_accuracy": 1}
"""The outcomes that every table has, and whether a good model has a low (-1) or a high (1) one."""

NOT_TESTED = {
    "model_accuracy": "the model's own accuracy: the outcome by another name.",
    "etf_floor": "a function of the numbers of classes and dimensions, not of the model.",
    **{
        name: "the model's own loss on these contexts, less a number of the text: the loss by another name."
        for name, key in context_columns().items()
        if key.metric == "entropy_gap"
    },
}
ARCHITECTURE = ("family", "depth", "width")
Family = Literal["paper", "exploration", "contexts"]
"""Metrics that are corrected together: the paper's seven, for the main tests; all others of tokens; contexts. Where
contexts were measured, the corrections of the others stay as they were."""
CONTEXTS = "contexts"
"""The property that metrics of contexts are about."""


@dataclass(frozen=True)
class Related:
    """What the analysis has to know of a metric of tokens, or of a metric of contexts at one length."""

    name: str
    property: str
    family: Family
    direction: Direction | None
    transform: Transform
    ideal: Ideal = None
    parts: tuple[str, str] | None = None
    in_paper: bool = False


RELATED: dict[str, Related] = {
    name: Related(
        name, metric.property, "paper" if metric.in_paper else "exploration",
        metric.direction, metric.transform, metric.ideal, metric.parts, metric.in_paper,
    )
    for name, metric in METRICS.items()
}  # fmt: skip
"""Every metric by its name: first those of tokens in the order of the catalogue, then those of contexts."""
for _name, _key in context_columns().items():
    _metric = CONTEXT_METRICS[_key.metric]
    RELATED[_name] = Related(_name, CONTEXTS, "contexts", _metric.direction, _metric.transform, _metric.least)


def toward(metric: Related, values: Floats, ideals: Floats) -> int:
    """Where a metric of models with these values and ideals moves as they collapse: -1 or 1; 0 where that is not known.

    The catalogue says so for most metrics. Two kinds need the values. One that *approaches* its ideal falls if all
    models are above it and rises if all are below. One that falls to 0 and yet has negative values is a ratio whose
    denominator changed its sign: it has no direction here.
    """
    if metric.direction == "approaches":
        above = (values - ideals)[~np.isnan(values - ideals)]
        return 0 if not len(above) else -1 if (above > 0).all() else int((above < 0).all())
    if metric.direction == "falls" and metric.ideal == 0 and (values[~np.isnan(values)] < 0).any():
        return 0
    return {"falls": -1, "rises": 1, None: 0}[metric.direction]


NUMBERS = ("epochs", "epoch", "weight_decay", "lr", "step")
"""Settings that are numbers in every table of runs; all others are text."""
UNKNOWN = "?"
ONLY = "the only one"
"""How a regime is written where no setting varies."""


class Regime(NamedTuple):
    """The settings of a regime, in the order of the table's columns."""

    settings: tuple[tuple[str, float | str | None], ...] = ()
    """Each with its value: a number for `NUMBERS`, text for all others, None where it is not known."""

    @classmethod
    def of(cls, names: Iterable[str], values: Iterable[Cell]) -> "Regime":
        """The regime of these columns of one model; numbers keep six digits, as many as are written."""
        return cls(tuple((name, _setting_value(name, value)) for name, value in zip(names, values, strict=True)))

    @classmethod
    def read(cls, text: str) -> "Regime":
        """The regime that `str` wrote."""
        if text in ("", ONLY):
            return cls()
        pairs = (part.partition("=")[::2] for part in text.split(" "))
        return cls.of(*zip(*((unquote(name), unquote(value)) for name, value in pairs), strict=True))

    def __str__(self) -> str:
        values = (UNKNOWN if v is None else f"{v:g}" if isinstance(v, float) else _quoted(v) for _, v in self.settings)
        names = (_quoted(name) for name, _ in self.settings)
        return " ".join(f"{name}={value}" for name, value in zip(names, values, strict=True)) or ONLY

    def number(self, name: str) -> float | None:
        """The value of a setting that is a number; None where it is not known, or does not vary."""
        value = dict(self.settings).get(name)
        return value if isinstance(value, float) else None

    def without(self, name: str) -> "Regime":
        """All but this setting."""
        return Regime(tuple(setting for setting in self.settings if setting[0] != name))


def _setting_value(name: str, value: Cell) -> float | str | None:
    if value is None or value == UNKNOWN or (isinstance(value, float) and math.isnan(value)):
        return None
    if name in NUMBERS:
        return float(f"{float(value):g}")
    return f"{value:g}" if isinstance(value, float) else str(value)


def _quoted(text: str) -> str:
    """Text in which no space and no equals sign is left, so that it can be read again."""
    for character in "% =":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


@dataclass(frozen=True)
class Variable:
    """A metric as it enters a statistic: raw, or its logarithm."""

    metric: str
    transform: Transform
    values: Floats
    """NaN where the metric is missing, or is not positive and has no logarithm."""

    @property
    def why_description(self) -> Reason | None:
        """Why this variable is described and not judged; None where it is judged."""
        metric = RELATED[self.metric]
        if metric.parts is not None:
            std, mean = metric.parts
            text = f"a ratio whose denominator may change its sign; {std} and {mean} are judged in its place."
            return Reason(Cause.NOT_A_TEST, text, Verdict.DESCRIPTION)
        if self.transform != metric.transform:
            text = f"judged on its logarithm: {self.metric} spans decades."
            return Reason(Cause.NOT_A_TEST, text, Verdict.DESCRIPTION)
        return None


@dataclass(frozen=True)
class Models:
    """The models of a suite or of a published table, and which metrics and outcome are known of them."""

    frame: pd.DataFrame
    """The columns of `runs.csv`, the labels, `last`, and for every metric its value, its null and its ideal."""
    metrics: tuple[str, ...]
    outcome: str

    @cached_property
    def trained(self) -> pd.DataFrame:
        """All but initialisations, which would make any relation a relation with having been trained at all."""
        return self.frame[self.frame["epoch"] != 0].reset_index(drop=True)

    @cached_property
    def compared(self) -> "pd.Series[bool]":
        """Which models of `frame` a relation across models shows: the last checkpoint of each run that is no arm.

        Earlier checkpoints repeat their run, and an intervention moves a metric and the outcome by itself.
        """
        return (self.frame["epoch"] != 0) & self.frame["last"] & untreated(self.frame)

    @cached_property
    def known(self) -> pd.DataFrame:
        """The trained models of which there is any number: a run that failed has a row, and no more."""
        return self.trained[self.trained[[*self.metrics, self.outcome]].notna().any(axis=1)]

    @cached_property
    def repeats(self) -> "pd.Series[bool]":
        """Whether a trained model repeats an earlier run with all its settings and seeds, which is no new evidence."""
        return repeated(self.trained)

    @cached_property
    def varying(self) -> list[str]:
        """The settings that make up a regime."""
        return regime_columns(self.frame)

    @property
    def regimes(self) -> list[Regime]:
        """The regime of every model of `frame`, in its order; the column of that name is the same as text."""
        return [Regime.of(self.varying, values) for values in row_tuples(self.frame, self.varying)]

    @cached_property
    def variables(self) -> list[Variable]:
        """Every metric of the trained models as it was measured, and its logarithm where the catalogue says so."""
        variables = []
        for metric in self.metrics:
            values = self.trained[metric].to_numpy(dtype=float)
            variables.append(Variable(metric, "raw", values))
            if RELATED[metric].transform == "log":
                positive = np.where(values > 0, values, np.nan)
                variables.append(Variable(metric, "log", np.log(positive)))
        return variables

    @cached_property
    def toward(self) -> dict[str, int]:
        """Where each metric moves as these models collapse."""
        return {
            metric: toward(RELATED[metric], self.frame[metric].to_numpy(), self.frame[f"{metric} ideal"].to_numpy())
            for metric in self.metrics
        }

    def expected(self, metric: str) -> int:
        """The sign of r where more collapse correlates with a better outcome; 0 where no direction is predicted."""
        return self.toward[metric] * better(self.outcome)


class NothingToRelate(RunError):
    """Tables that are in order, and hold no outcome yet that a metric could be related to."""


def combine(
    runs: Iterable[Run], rows: Iterable[Row], contexts: Iterable[ContextRow] = (), *, outcome: str = "val_loss"
) -> Models:
    """Runs and the results of their last layer, over all classes, on the training split, by run and checkpoint.

    Metrics of contexts have one name for each length; the one that is the outcome is no metric.
    """
    better(outcome)
    runs = list(runs)
    if not is_comparable(outcome, runs):
        raise ConfigError(
            f"outcome: {outcome} is a number per token, and these models have {_tokenizers(runs)} tokenizers, whose "
            f"tokens are not equally long. Use {BITS_PER_BYTE}."
        )
    frame = pd.DataFrame(runs)
    if frame.empty:
        raise NothingToRelate("runs.csv: no models in it.")
    if outcome not in frame or frame[outcome].isna().all():
        scores = [name for name in map(str, frame) if name.startswith((SCORE, COST))]
        there = f" Choose from {', '.join(scores[:8])}." if scores else ""
        raise NothingToRelate(
            f"runs.csv: no model has a {outcome}.{there} Measure it (--outcomes, --on or --data) and collect again, or "
            "give it (analyze DIR --scores FILE)."
        )
    numbers = _numbers(rows, contexts, set(zip(frame["run"], frame["checkpoint"], strict=True)), outcome)
    measured = set(numbers["metric"])
    metrics = tuple(metric for metric in RELATED if metric in measured)
    labelled = _labelled(frame).drop(columns=[metric for metric in metrics if metric in frame])
    return Models(_with_metrics(labelled, numbers, metrics), metrics, outcome)


def _numbers(
    rows: Iterable[Row], contexts: Iterable[ContextRow], models: set[tuple[str, str]], outcome: str
) -> pd.DataFrame:
    """The metrics of the last layer in long form; RunError where a metric or a model is not known."""
    chosen = [row for row in rows if (row.split, row.layer, row.bin) == ("train", "last", "all")]
    tokens = [(row.run, row.checkpoint, row.metric, row.value, row.null, row.classes) for row in chosen]
    named = [(row, ContextColumn(row.metric, row.n).name) for row in contexts if row.layer == "last"]
    of_contexts = [(row.run, row.checkpoint, name, row.value, row.null, None) for row, name in named if name != outcome]
    for file, numbers in (("results.csv", tokens), ("contexts.csv", of_contexts)):
        for run, checkpoint, metric, *_ in numbers:
            if metric not in RELATED:
                hint = did_you_mean(metric, RELATED, otherwise="See `collapselab metrics`.")
                raise RunError(f"{file}: {metric!r} is not a metric of the catalogue. {hint}")
            if (run, checkpoint) not in models:
                raise RunError(f"{file}: run {run}, checkpoint {checkpoint} is not in runs.csv.")
    return pd.DataFrame([*tokens, *of_contexts], columns=["run", "checkpoint", "metric", "value", "null", "classes"])


def better(outcome: str) -> int:
    """-1 where a good model has a low outcome, 1 where it has a high one; ConfigError if it is none."""
    known = BETTER.get(outcome) or outcomes.direction(outcome)
    if known is None:
        names = [*BETTER, *outcomes.OUTCOMES, BITS_PER_BYTE]
        further = f"{ON}NAME, {SCORE}NAME or {COST}NAME"
        hint = did_you_mean(outcome, names, otherwise=f"It is one of {', '.join(names)}, {further}.")
        raise ConfigError(f"outcome: {outcome!r} is not one. {hint}")
    return known


def _labelled(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.copy()
    numbers = ("width", "depth", "epochs", "epoch", "weight_decay", "lr", "parameters", "tokens", *BETTER)
    for column in [name for name in map(str, frame) if name in numbers or outcomes.direction(name) is not None]:
        frame[column] = pd.to_numeric(frame[column]).astype(float)
    # How far a checkpoint is along its run: the step where that is known, as of models of the hub, else the epoch.
    progress: pd.Series = frame["epoch"]
    if "step" in frame:
        frame["step"] = pd.to_numeric(frame["step"]).astype(float)
        progress = frame["step"].fillna(progress)
    latest = progress.groupby(frame["run"]).transform("max")
    frame["last"] = (progress == latest) | latest.isna()
    # A run ends with a whole step: where the batch does not divide the corpus, an epoch is 0.99997 of one.
    frame["epoch"] = [float(f"{epoch:.3g}") for epoch in frame["epoch"]]
    frame["architecture"] = [
        f"{family or '?'} {_text(depth)}x{_text(width)}" for family, depth, width in row_tuples(frame, ARCHITECTURE)
    ]
    varying = regime_columns(frame)
    frame["regime"] = [str(Regime.of(varying, values)) for values in row_tuples(frame, varying)]
    frame["cell"] = frame["architecture"] + " " + frame["regime"]
    return frame


def default_outcome(runs: Iterable[Run]) -> str:
    """The outcome by default: the loss, or bits per byte where models have several tokenizers."""
    return BITS_PER_BYTE if _tokenizers(runs) > 1 else "val_loss"


def is_comparable(outcome: str, runs: Iterable[Run]) -> bool:
    """Whether models may be compared by the outcome: per byte always, per token where all have one tokenizer."""
    return outcome == BITS_PER_BYTE or outcome.startswith((ON, SCORE, COST)) or _tokenizers(runs) < 2


def _tokenizers(runs: Iterable[Run]) -> int:
    """Tokenizers among models that say theirs."""
    return len({run.get("tokenizer") for run in runs} - {None})


def row_tuples(frame: pd.DataFrame, names: Sequence[str]) -> list[tuple[Cell, ...]]:
    """These columns row by row; of no columns as many empty tuples as there are rows, in every version of pandas."""
    return list(zip(*(frame[name] for name in names), strict=True)) if names else [()] * len(frame)


def further_settings(frame: pd.DataFrame) -> list[str]:
    """The settings beside those that every table of runs has a column for; outcomes are none."""
    made = {*RUNS.columns, *RELATED, "architecture", "regime", "cell", "last"}
    names = [name for name in map(str, frame) if name not in made and not name.endswith((" null", " ideal"))]
    return [name for name in names if outcomes.direction(name) is None]


def seed_columns(frame: pd.DataFrame) -> list[str]:
    """The columns that are seeds."""
    return ["seed", *(name for name in map(str, frame) if name.endswith("_seed"))]


def untreated(frame: pd.DataFrame, *, shams: bool = False) -> "pd.Series[bool]":
    """Whether a model has a learned head and no intervention, or with `shams` none but shams."""
    allowed = pd.Series(True, index=frame.index)
    if "intervene" in frame:
        doses = frame["intervene"].fillna("").map(str.split)
        allowed &= doses.map(lambda own: all(shams and ":sham" in dose for dose in own))
    if "head" in frame:
        allowed &= frame["head"].fillna("learned").eq("learned")
    return allowed


def repeated(frame: pd.DataFrame) -> "pd.Series[bool]":
    """Whether the cell and the known seeds of a row are those of a row before it."""
    columns = seed_columns(frame)
    return frame.duplicated(["cell", *columns]) & frame[columns].notna().any(axis=1)


def regime_columns(frame: pd.DataFrame) -> list[str]:
    """The settings beside the architecture and the seeds that vary within some architecture."""
    further = (name for name in further_settings(frame) if not name.endswith("_seed"))
    settings = ["epochs", "epoch", "weight_decay", "lr", *further]
    if "step" in frame and frame["step"].notna().all():
        settings.remove("epoch")  # which is 0 before training, and else not known: the step says more
    architectures = frame.groupby("architecture")
    return [column for column in settings if (architectures[column].nunique(dropna=False) > 1).any()]


def _text(value: Cell) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "?"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _with_metrics(frame: pd.DataFrame, numbers: pd.DataFrame, metrics: tuple[str, ...]) -> pd.DataFrame:
    keys = pd.MultiIndex.from_frame(frame[["run", "checkpoint"]])
    results = numbers.set_index(["run", "checkpoint", "metric"])
    columns = {}
    for metric in metrics:
        of_metric = results.xs(metric, level="metric").reindex(keys)
        columns[metric] = of_metric["value"].to_numpy(dtype=float)
        columns[f"{metric} null"] = of_metric["null"].to_numpy(dtype=float)
        sizes = zip(of_metric["classes"].astype(float), frame["width"], strict=True)
        ideals = [None if np.isnan(size).any() else ideal_at(RELATED[metric].ideal, *map(int, size)) for size in sizes]
        columns[f"{metric} ideal"] = np.array(ideals, dtype=float)
    return pd.concat([frame, pd.DataFrame(columns, index=frame.index)], axis=1)
