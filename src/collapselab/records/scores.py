"""Scores that the user brings: of benchmarks or anything else, joined to models by their names.

Read are a table of comma-separated values with a column `run` or `model` (and `checkpoint`, if it is not the last one)
and a column for each score; a result file of lm-evaluation-harness, as it is; or a folder of such files. A score
becomes an outcome, `score:NAME` where a good model has a high one and `cost:NAME` where it has a low one (losses,
perplexities and the like, or what lm-evaluation-harness says). Scores are kept in `analysis/scores.csv`.
"""

import json
import math
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from collapselab.disk import disk_errors, read_bytes
from collapselab.errors import ConfigError, RunError
from collapselab.records.outcomes import COST, SCORE
from collapselab.records.table import parse_table, shown, table_bytes
from collapselab.records.tables import Run

COLUMNS = ("run", "checkpoint", "outcome", "value")
STORED = "scores.csv"
NAMED = 5
"""Names that a message lists."""
LOW_IS_GOOD = re.compile(r"loss|perplexity|ppl|bits_per_byte|bpb|brier|ece|error|nll|surprisal", re.IGNORECASE)
NAME = re.compile(r"[^\s,='\"\\<>]{1,120}")
MOST_BYTES = 1 << 28


@final
@dataclass(frozen=True)
class Score:
    """One number of one model, as a file names it."""

    name: str
    checkpoint: str | None
    outcome: str
    value: float


@final
@dataclass(frozen=True)
class JoinedScores:
    """Scores by run, checkpoint and outcome, and the names on either side that match nothing on the other."""

    values: dict[tuple[str, str], dict[str, float]]
    unmatched: list[str]
    without: list[str]
    """Runs without a score."""

    def report(self) -> list[str]:
        """What was joined and what was not, in words."""
        outcomes = sorted({outcome for scores in self.values.values() for outcome in scores})
        lines = [f"scores: {len(self.values):,} models have {', '.join(outcomes)}."]
        if self.unmatched:
            lines.append(f"scores: names that match no run ({len(self.unmatched):,}): {_some(self.unmatched)}.")
        if self.without:
            lines.append(f"scores: runs without a score ({len(self.without):,}): {_some(self.without)}.")
        return lines


def read_scores(path: str | Path) -> list[Score]:
    """The scores of a file or folder; RunError or ConfigError names what is wrong in it."""
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
    """Scores by run and checkpoint: by the run's name, a path that ends in it, or run@checkpoint.

    A score without a checkpoint is that of the run's last one. ConfigError where no score matches a run, or where two
    numbers are given for the same.
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
            raise ConfigError(f"scores: two numbers for {score.outcome} of {'@'.join(place)}. Leave one in.")
    if not values:
        raise ConfigError(
            f"scores: none of {len(unmatched):,} names matches a run. They are {_some(unmatched)}; the runs are "
            f"{_some(last)}. A name is that of a run, a path that ends in it, or run@checkpoint."
        )
    scored = {run for run, _ in values}
    return JoinedScores(values, list(unmatched), [run for run in last if run not in scored])


def scores_bytes(joined: JoinedScores) -> bytes:
    """The file that keeps them."""
    lines = [(*place, outcome, value) for place, own in sorted(joined.values.items()) for outcome, value in own.items()]
    return table_bytes(COLUMNS, lines)


def with_scores(runs: Sequence[Run], stored: bytes | None) -> list[Run]:
    """The rows of `runs.csv` with a column for each stored score."""
    if stored is None:
        return list(runs)
    header, lines = parse_table(stored, STORED)
    if tuple(header) != COLUMNS:
        raise RunError(f"{STORED}: its columns are {', '.join(header)}. Run `analyze --scores FILE` again.")
    by_model: dict[tuple[str, str], dict[str, float]] = {}
    for number, (run, checkpoint, outcome, value) in lines:
        by_model.setdefault((run, checkpoint), {})[outcome] = _number(value, f"{STORED}, line {number}")
    blank = dict.fromkeys(sorted({name for own in by_model.values() for name in own}))
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
    header, lines = parse_table(read_bytes(path), path)
    key = next((name for name in ("run", "model") if name in header), None)
    columns = [name for name in header if name not in ("run", "model", "checkpoint")]
    if key is None or not columns:
        raise ConfigError(
            f"{path}: its columns are {', '.join(header)[:200]}. It needs `run` or `model`, and one for each score."
        )
    names = {column: score_outcome(column) for column in columns}
    scores = []
    for number, line in lines:
        cells = dict(zip(header, line, strict=True))
        for column, outcome in names.items():
            if cells[column].strip():
                value = _number(cells[column], f"{path}, line {number}, {column}")
                scores.append(Score(cells[key], cells.get("checkpoint") or None, outcome, value))
    return scores


def _harness_scores(path: Path) -> list[Score]:
    """The numbers of every task; a group's and a task's alike, standard errors left out."""
    with disk_errors(path, reading=True):
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path}: larger than {MOST_BYTES >> 20} MiB; result files are not.")
        content = path.read_bytes()
    try:
        document = json.loads(content)
        tasks = document["results"].items()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path}: not a result file of lm-evaluation-harness: no `results` in it.") from error
    name, directions, scores = _model_of(document, path), document.get("higher_is_better"), []
    for task, numbers in tasks:
        known = directions.get(task) if isinstance(directions, dict) else None
        for key, value in numbers.items() if isinstance(numbers, dict) else ():
            metric, _, kind = key.partition(",")
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or metric.endswith(("_stderr", "sample_len"))
            ):
                continue
            high = known.get(metric) if isinstance(known, dict) else None
            label = f"{task}/{metric}" + (f"/{kind}" if kind not in ("", "none") else "")
            if abs(value) <= sys.float_info.max:  # nan, infinity, 400 digits are no scores
                high = high if isinstance(high, bool) else None
                scores.append(Score(name, None, score_outcome(label, high=high), float(value)))
    return scores


def _model_of(document: dict[str, Any], path: Path) -> str:
    config = document.get("config")
    arguments = config.get("model_args") if isinstance(config, dict) else None
    if isinstance(arguments, str):
        arguments = dict(part.split("=", 1) for part in arguments.split(",") if "=" in part)
    pretrained = arguments.get("pretrained") if isinstance(arguments, dict) else None
    for name in (pretrained, document.get("model_name")):
        if isinstance(name, str) and name:
            return name
    raise ConfigError(f"{path}: does not say which model it is of (`config.model_args.pretrained`, `model_name`).")


def score_outcome(label: str, *, high: bool | None = None) -> str:
    """`score:LABEL` or `cost:LABEL`; `high` says whether a high one is good, where it is known."""
    label = label.strip().replace(" ", "_")
    is_whole = label.startswith((SCORE, COST))
    name = label.partition(":")[2] if is_whole else label
    if not NAME.fullmatch(name) or not name.isprintable():
        raise ConfigError(
            f"scores: {shown(label)} is not a name of a score: no spaces, commas, quotes or any of = < > \\ in it."
        )
    if is_whole:
        return label
    good = not LOW_IS_GOOD.search(label) if high is None else high
    return f"{SCORE if good else COST}{label}"


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RunError(f"{where}: {shown(text)} is not a number. Leave it empty where there is none.")
    return value


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - NAMED:,} more" if len(listed) > NAMED else ""
    return ", ".join(shown(name) for name in listed[:NAMED]) + more
