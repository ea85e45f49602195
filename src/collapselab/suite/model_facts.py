"""What is known of a measured model beside its numbers: its run and step, its sizes, the tokens it was trained on.

    EleutherAI/pythia-70m@step1000        run EleutherAI/pythia-70m, step 1,000
    out/small/checkpoint-500              run out/small, step 500

Sizes are facts of the measurement. Training tokens follow from a revision that names them (`tokens5B`), or from the
step for models whose tokens a step are published. Everything else can be said in a table, `--facts models.csv`, whose
column `model` has names or patterns; what is said there counts more than what is derived.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import final

from collapselab.disk import read_bytes
from collapselab.errors import ConfigError, did_you_mean
from collapselab.records.facts import Facts
from collapselab.records.table import Cell, base_type, parse_table
from collapselab.records.tables import RUNS

TOKENS_A_STEP = {"EleutherAI/pythia-*": 2_097_152}
"""Tokens of a training step, by name. Pythia: 1,024 sequences of 2,048 (Biderman et al. 2023, arXiv:2304.01373)."""

STEP = re.compile(r"(?:global[-_]?step|step|checkpoint|ckpt|iter)[-_]?([0-9]{1,15})(?![0-9])", re.IGNORECASE)
TOKENS = re.compile(r"tokens?[-_]?([0-9]{1,6}(?:\.[0-9]{1,6})?)([KMBT])(?![A-Za-z])", re.IGNORECASE)
SEED = re.compile(r"(?:^|[-_])seed[-_]?([0-9]{1,9})(?:$|[-_@/])", re.IGNORECASE)
UNITS = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}

GIVEN = (
    "family", "width", "depth", "parameters", "vocabulary", "tokens", "seed", "epochs", "epoch", "weight_decay", "lr",
    "step", "tokens_per_step"
)  # fmt: skip
"""Columns of `models.csv` that mean something here; others become columns of runs.csv as they are."""


@final
@dataclass(frozen=True)
class Place:
    """Which run a model belongs to, and which checkpoint of it it is."""

    run: str
    checkpoint: str
    step: int | None


def named_place(facts: Facts) -> Place:
    """The run and the step that the name of a model says; `-` is the checkpoint of one without."""
    model, checkpoint = facts["model"], facts["checkpoint"]
    if facts["in_a_run"]:
        return Place(facts["run"], checkpoint, None)
    if checkpoint != "-":  # a revision of the hub
        return Place(model.removesuffix(f"@{checkpoint}"), checkpoint, _step(checkpoint))
    path = PurePath(model)
    if (step := _step(path.name)) is None:
        return Place(model, checkpoint, None)
    return Place(str(path.parent), path.name, step)


def _step(name: str) -> int | None:
    numbers = STEP.findall(name)
    return int(numbers[-1]) if numbers else None


def training_tokens(place: Place, tokens_a_step: int | None = None) -> int | None:
    """The tokens that a model was trained on by then; None where neither name nor step says it."""
    if place.step == 0:
        return 0
    if said := TOKENS.search(place.checkpoint):
        return int(float(said[1]) * UNITS[said[2].upper()])
    if tokens_a_step is None:
        tokens_a_step = next((n for name, n in TOKENS_A_STEP.items() if fnmatchcase(place.run, name)), None)
    return None if tokens_a_step is None or place.step is None else place.step * tokens_a_step


def seed_of(place: Place) -> int | None:
    """The seed that the name of a run says, as in pythia-70m-seed3."""
    said = SEED.search(place.run)
    return int(said[1]) if said else None


@final
class GivenFacts:
    """The lines of a `models.csv`: what its author says of models, by name or pattern."""

    def __init__(self, lines: Sequence[tuple[str, Mapping[str, Cell]]] = (), where: str = "") -> None:
        self.lines, self.where = list(lines), where
        self.used: set[str] = set()

    @classmethod
    def read(cls, path: str | Path) -> "GivenFacts":
        """The file; ConfigError names the line and column of what is wrong."""
        header, lines = parse_table(read_bytes(Path(path)), path)
        if "model" not in header:
            raise ConfigError(f"{path}: no column model, which says what a line is about; it has {', '.join(header)}.")
        reserved = {"run", "checkpoint", "why", "val_loss", "train_loss", "val_accuracy", "perplexity", "seconds"}
        for column in header:
            if column in reserved:
                raise ConfigError(f"{path}: {column} comes from measuring and cannot be given. Leave the column out.")
            near = did_you_mean(column, GIVEN)
            if column != "model" and column not in GIVEN and near:
                raise ConfigError(f"{path}: {column} is not a column that is known. {near}")
        read = []
        for number, line in lines:
            cells = dict(zip(header, line, strict=True))
            try:
                read.append((cells.pop("model"), {name: _cell(name, text) for name, text in cells.items() if text}))
            except ValueError as error:
                raise ConfigError(f"{path}, line {number}: {error}") from error
        return cls(read, str(path))

    def of(self, model: str, run: str) -> dict[str, Cell]:
        """What is said of a model, by its name or that of its run; later lines count more."""
        said: dict[str, Cell] = {}
        for name, cells in self.lines:
            if any(fnmatchcase(known, name) for known in (model, run)):
                self.used.add(name)
                said |= cells
        return said

    def unused(self) -> list[str]:
        """Names that no model has."""
        return list(dict.fromkeys(name for name, _ in self.lines if name not in self.used))


def _cell(name: str, text: str) -> Cell:
    column = "tokens" if name == "tokens_per_step" else name
    if (
        base_type(RUNS.type_of(column)) is int
        and re.fullmatch(r"[0-9.]+[eE]\+?[0-9]{1,2}", text)
        and float(text).is_integer()
    ):
        text = str(int(float(text)))
    return RUNS.cell(column, text)
