"""Scores that the user brings, of benchmarks or anything else, joined to models by name.

Three forms can be read: a CSV with a column `run` or `model`, a column for each score and possibly `checkpoint` (else
the score is that of the last one); a result file of lm-evaluation-harness; or a folder of such files. A score becomes
an outcome: `score:NAME` if higher is better, and `cost:NAME` if lower is better (losses, perplexities and the like, or
what lm-evaluation-harness says). Scores are stored in `analysis/scores.csv`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from typing_extensions import TypedDict  # that of typing only from Python 3.12 on

from collapselab.disk import first_error, read_bytes
from collapselab.errors import ConfigError
from collapselab.records.outcomes import COST, SCORE
from collapselab.records.table import Name, Number, Table, parse_table, row_type, shown
from collapselab.records.tables import Run

NAMED = 5
"""Names that a message lists."""
LOW_IS_GOOD = re.compile(r"loss|perplexity|ppl|bits_per_byte|bpb|brier|ece|error|nll|surprisal", re.IGNORECASE)
NAME = re.compile(r"[^\s,='\"\\<>]{1,120}")


class Stored(TypedDict):
    """One score of one checkpoint."""

    run: Name
    checkpoint: Name
    outcome: Name
    value: Number


SCORES: Table[Stored] = Table("scores", Stored, key=("run", "checkpoint", "outcome"))
STORED = SCORES.file


class HarnessFile(BaseModel):
    """A result file of lm-evaluation-harness, as far as it is read."""

    results: dict[str, dict[str, Any]]
    higher_is_better: dict[str, Any] | None = None
    config: dict[str, Any] | None = None
    model_name: str | None = None


@dataclass(frozen=True)
class Score:
    """One score of one model, under the name in its file."""

    name: str
    checkpoint: str | None
    outcome: str
    value: float


@dataclass(frozen=True)
class JoinedScores:
    """Scores by run, checkpoint and outcome, and the names on either side that have no match."""

    values: dict[tuple[str, str], dict[str, float]]
    unmatched: list[str]
    without: list[str]
    """Runs without a score."""

    def report(self) -> list[str]:
        """Return sentences that say what was joined and what was not."""
        outcomes = sorted({outcome for scores in self.values.values() for outcome in scores})
        lines = [f"scores: {len(self.values):,} models have {', '.join(outcomes)}."]
        if self.unmatched:
            lines.append(f"scores: names that match no run ({len(self.unmatched):,}): {_some(self.unmatched)}.")
        if self.without:
            lines.append(f"scores: runs without a score ({len(self.without):,}): {_some(self.without)}.")
        return lines


def read_scores(path: str | Path) -> list[Score]:
    """Return the scores of a file or folder; RunError or ConfigError names what is wrong in it."""
    path = Path(path)
    if path.is_dir():
        files = sorted(file for file in path.rglob("*.json") if file.is_file())
        if not files:
            raise ConfigError(f"{path}: no .json file in this folder. Name a result file, or a .csv table.")
        return [score for file in files for score in _harness_scores(file)]
    if not path.is_file():
        raise ConfigError(f"{path}: no such file. Name a table of scores, or a result file of lm-evaluation-harness.")
    return _harness_scores(path) if path.suffix == ".json" else _table_scores(path)


def join_scores(scores: Sequence[Score], runs: Iterable[Run]) -> JoinedScores:
    """Join scores to runs by the run's name, a path that ends in it, or run@checkpoint.

    A score without a checkpoint belongs to the run's last one. ConfigError if no score matches a run, or if two
    different values are given for the same outcome.
    """
    runs = list(runs)
    known = {(run["run"], run["checkpoint"]) for run in runs}
    last = {run["run"]: run for run in sorted(runs, key=lambda run: run["epoch"] or 0.0)}
    values: dict[tuple[str, str], dict[str, float]] = {}
    unmatched: dict[str, None] = {}
    for score in scores:
        place = _place(score, last, known)
        if place is None:
            unmatched[score.name if score.checkpoint is None else f"{score.name}@{score.checkpoint}"] = None
            continue
        if values.setdefault(place, {}).setdefault(score.outcome, score.value) != score.value:
            raise ConfigError(f"scores: two values for {score.outcome} of {'@'.join(place)}. Remove one of them.")
    if not values:
        raise ConfigError(
            f"scores: none of {len(unmatched):,} names matches a run. The names are {_some(unmatched)}; the runs are "
            f"{_some(last)}. Use the name of a run, a path that ends in it, or run@checkpoint."
        )
    scored = {run for run, _ in values}
    return JoinedScores(values, list(unmatched), [run for run in last if run not in scored])


def scores_bytes(joined: JoinedScores) -> bytes:
    """Return the contents of the file that stores them."""
    rows = [
        Stored(run=run, checkpoint=checkpoint, outcome=outcome, value=value)
        for (run, checkpoint), scores in sorted(joined.values.items())
        for outcome, value in scores.items()
    ]
    return SCORES.content(rows, STORED)


def with_scores(runs: Sequence[Run], stored: bytes | None) -> list[Run]:
    """Return the rows of `runs.csv` with a column for each stored score."""
    if stored is None:
        return list(runs)
    by_model: dict[tuple[str, str], dict[str, float]] = {}
    for row in SCORES.parse(stored, STORED):
        by_model.setdefault((row["run"], row["checkpoint"]), {})[row["outcome"]] = row["value"]
    blank = dict.fromkeys(sorted({name for scores in by_model.values() for name in scores}))
    return [{**run, **blank, **by_model.get((run["run"], run["checkpoint"]), {})} for run in runs]  # type: ignore[typeddict-item]


def _place(score: Score, last: dict[str, Run], known: set[tuple[str, str]]) -> tuple[str, str] | None:
    name, _, at = score.name.partition("@") if score.name not in last else (score.name, "", "")
    checkpoint = score.checkpoint or at or None
    parts = [part for part in re.split(r"[/\\]", name) if part not in ("", ".")]
    if len(parts) >= 3 and parts[-2] == "checkpoints":
        parts, checkpoint = parts[:-2], checkpoint or parts[-1]
    run = name if name in last else parts[-1] if parts else ""
    if run not in last:
        return None
    place = (run, checkpoint or last[run]["checkpoint"])
    return place if place in known else None


def _table_scores(path: Path) -> list[Score]:
    header = parse_table(read_bytes(path), path)[0]
    key = "run" if "run" in header else "model"
    names = {name: score_outcome(name) for name in header if name not in ("run", "model", "checkpoint")}
    if key not in header or not names:
        raise ConfigError(f"{path}: needs a column `run` or `model` and one for each score, got {shown(header)}.")
    of_model = tuple(name for name in ("run", "model", "checkpoint") if name in header)
    row = row_type({name: Name if name == key else Name | None for name in of_model})
    table: Table[Any] = Table("scores", row, key=of_model, further=key, further_type=lambda _: Number)
    return [
        Score(cells[key], cells.get("checkpoint"), outcome, cells[name])
        for cells in table.read(path)
        for name, outcome in names.items()
        if cells[name] is not None
    ]


def _harness_scores(path: Path) -> list[Score]:
    """Read the values of all tasks and groups, without standard errors."""
    try:
        document = HarnessFile.model_validate_json(read_bytes(path))
    except ValidationError as error:
        raise ConfigError(f"{path}: not a result file of lm-evaluation-harness ({first_error(error)}).") from error
    name, scores = _model_of(document, path), []
    for task, values in document.results.items():
        directions = (document.higher_is_better or {}).get(task)
        for key, value in values.items():
            metric, _, kind = key.partition(",")
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e308
            if is_number and not metric.endswith(("_stderr", "sample_len")):
                high = directions.get(metric) if isinstance(directions, dict) else None
                label = f"{task}/{metric}" + (f"/{kind}" if kind not in ("", "none") else "")
                scores.append(Score(name, None, score_outcome(label, high=high), float(value)))
    return scores


def _model_of(document: HarnessFile, path: Path) -> str:
    arguments = (document.config or {}).get("model_args") or {}
    if isinstance(arguments, str):
        arguments = dict(part.split("=", 1) for part in arguments.split(",") if "=" in part)
    name = arguments.get("pretrained") or document.model_name
    if not name:
        raise ConfigError(f"{path}: does not name its model (`config.model_args.pretrained` or `model_name`).")
    return str(name)


def score_outcome(label: str, *, high: bool | None = None) -> str:
    """Return `score:LABEL` or `cost:LABEL`; `high` says whether higher is better, if that is known."""
    label = label.strip().replace(" ", "_")
    is_whole = label.startswith((SCORE, COST))
    name = label.partition(":")[2] if is_whole else label
    if not NAME.fullmatch(name) or not name.isprintable():
        raise ConfigError(
            f"scores: {shown(label)} is not a valid name: spaces, commas, quotes and any of = < > \\ are not allowed."
        )
    if is_whole:
        return label
    good = not LOW_IS_GOOD.search(label) if high is None else high
    return f"{SCORE if good else COST}{label}"


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - NAMED:,} more" if len(listed) > NAMED else ""
    return ", ".join(shown(name) for name in listed[:NAMED]) + more
