"""collect: results of any origin → the tables that `analyze` and `report` read.

A folder of results, a run, a suite, a result in a file: each measured model becomes a row of runs.csv, its numbers rows
of results.csv. Models are compared on the same text, each in its own tokens, with the same options: a mix of texts,
options or versions of metrics is refused with what differs, unless it is asked for.

The name of a model says its run and step: EleutherAI/pythia-70m@step1000 is step 1,000 of EleutherAI/pythia-70m, and
out/small/checkpoint-500 step 500 of out/small. Sizes are facts of the measurement. Training tokens follow from a
revision that names them (`tokens5B`), or from the step for models whose tokens a step are published. Everything else
can be given in a table, `--facts models.csv`, whose column `model` has names or patterns; it overrides what is derived.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Literal, final

from collapselab.disk import read_bytes, sha256
from collapselab.errors import ConfigError, RunError, did_you_mean
from collapselab.records.facts import Facts
from collapselab.records.measurement import Result
from collapselab.records.result_folder import OTHERS, StoredResult, find_results
from collapselab.records.run import RunFolder
from collapselab.records.table import Cell, ColumnTable, base_type, parse_table
from collapselab.records.tables import RUNS, TABLES, RowsByTable, Run, newest_versions, write_tables
from collapselab.suite.collect import run_row

Mix = Literal["corpora", "options"]
MIXES: tuple[Mix, ...] = ("corpora", "options")
NO_NUMBERS = ("batch", "shard_classes", "on")
"""Options by which results may differ: they decide how it is computed, or add what has a column of its own."""

SHOWN = 3
"""Models of a group that a message names."""

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
class CollectedModels:
    """What was written, and what a reader should know of it."""

    models: int
    runs: int
    notes: list[str] = field(default_factory=list)


@final
@dataclass(frozen=True)
class Place:
    """Which run a model belongs to, and which checkpoint of it it is."""

    run: str
    checkpoint: str
    step: int | None


@final
@dataclass(frozen=True)
class _Model:
    """A measured model, the file it is in, and its place among the others."""

    stored: StoredResult
    place: Place

    @property
    def result(self) -> Result:
        return self.stored.result


def collect_models(
    folders: Sequence[str | Path],
    out: str | Path,
    *,
    facts: str | Path | None = None,
    mix: Iterable[str] = (),
    in_suite: bool = False,
) -> CollectedModels:
    """Join the results in folders and files into the tables of the folder `out`, ready for `analyze` and `report`.

    >>> from collapselab import collect_models
    >>> collect_models(["suites/tiny"], "atlas").runs
    5

    `facts` is a table of what is known of models beside their numbers; `mix` names what may differ between them:
    corpora, options. `in_suite`: the tables are those of a suite of models, in its folder.
    """
    allowed = _allowed(mix)
    if not in_suite:
        _check_out(Path(out))
    given = GivenFacts() if facts is None else GivenFacts.read(facts)
    models = _found(folders)
    if "corpora" not in allowed:
        _refuse("corpora", "texts or lengths of block", models, _text)
    if "options" not in allowed:
        _refuse("options", "options", models, _options)
    models, notes = _without_outdated(models)
    models = _named(models, by_corpus="corpora" in allowed)
    tables = _tables(models, given)
    tables["results"], older = newest_versions(tables["results"])
    notes += older
    notes += [f"{given.where}: no model is called {name}." for name in given.unused()]
    made_from = [(str(model.stored.path), sha256(model.stored.path)) for model in models]
    write_tables(out, tables, made_from=list(dict.fromkeys(made_from)))
    return CollectedModels(len(tables["runs"]), len({run["run"] for run in tables["runs"]}), notes)


def _allowed(mix: Iterable[str]) -> set[str]:
    names = set(mix)
    for name in sorted(names - set(MIXES)):
        hint = did_you_mean(name, MIXES, otherwise=f"It is one of {', '.join(MIXES)}.")
        raise ConfigError(f"mix: {name!r} is not something that may differ. {hint}")
    return names


def _check_out(out: Path) -> None:
    for name, what in OTHERS.items():
        if (out / name).exists():
            raise ConfigError(f"{out}: the folder of {what}; the tables need one of their own. Name another.")


def _found(folders: Sequence[str | Path]) -> list[_Model]:
    """Every result in these places, each once, in the order of runs and steps."""
    if not folders:
        raise ConfigError("collect: no folder to collect from.")
    by_path = {
        (stored.path.resolve(), stored.result.name): stored for place in folders for stored in find_results(place)
    }
    models = [_Model(stored, named_place(stored.result.facts)) for stored in by_path.values()]
    return sorted(models, key=lambda model: (model.place.run, model.place.step or 0, model.place.checkpoint))


def _refuse(flag: str, what: str, models: list[_Model], key: Callable[[Result], str]) -> None:
    """ConfigError where results differ in the key, with the groups that there are."""
    groups: dict[str, list[str]] = {}
    for model in models:
        groups.setdefault(key(model.result), []).append(model.result.name)
    if len(groups) < 2:
        return
    parts = []
    for words, names in sorted(groups.items(), key=lambda group: -len(group[1])):
        more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        parts.append(f"{words} ({', '.join(names[:SHOWN])}{more})")
    raise ConfigError(
        f"collect: results of {len(groups)} {what}, which cannot be compared: {'; '.join(parts[:6])}. Collect them one "
        f"by one, measure all alike, or allow it with --mix {flag}."
    )


def _text(result: Result) -> str:
    """The text and the length of a block. Results of earlier versions know only their corpus."""
    facts = result.facts
    name, text = facts.get("text") or PurePath(facts["corpus"]).name, facts.get("text_hash") or facts["corpus_hash"]
    return f"{name} {text[:8]}, blocks of {facts.get('block', '?')}"


def _options(result: Result) -> str:
    options = {name: value for name, value in result.facts["options"].items() if name not in NO_NUMBERS}
    defaults = {"bins": 0, "null": True, "bootstrap": 0, "min_count": 1, "train_loss": False, "strict": False}
    told = {name: value for name, value in options.items() if value is not None and defaults.get(name) != value}
    return json.dumps(told, sort_keys=True)


def _without_outdated(models: list[_Model]) -> tuple[list[_Model], list[str]]:
    """Without the results of another program, and why; RunError if none is left."""
    why = {id(model): model.result.outdated() for model in models}
    current = [model for model in models if why[id(model)] is None]
    reasons = [f"{model.result.name}: {why[id(model)]}; left out." for model in models if why[id(model)]]
    if not current:
        raise RunError(f"{reasons[0]} None is left. Measure again.")
    return current, reasons


def _named(models: list[_Model], *, by_corpus: bool) -> list[_Model]:
    """Models whose runs have the shortest names that tell them apart; with several corpora also by corpus."""
    short: dict[str, set[str]] = {}
    for model in models:
        short.setdefault(_short(model), set()).add(model.place.run)
    several = by_corpus and len({_text(model.result) for model in models}) > 1
    named = []
    for model in models:
        name = _short(model) if len(short[_short(model)]) == 1 else model.place.run
        name = f"{name} on {_text(model.result)}" if several else name
        named.append(replace(model, place=replace(model.place, run=name)))
    seen: dict[tuple[str, str], Path] = {}
    for model in named:
        key = (model.place.run, model.place.checkpoint)
        if key in seen:
            raise ConfigError(
                f"collect: {' '.join(key)} is there twice, in {seen[key]} and {model.stored.path}. Remove one of them."
            )
        seen[key] = model.stored.path
    return named


def _short(model: _Model) -> str:
    facts = model.result.facts
    is_path = not facts["in_a_run"] and facts["checkpoint"] == "-"
    return PurePath(model.place.run).name or model.place.run if is_path else model.place.run


def _tables(models: list[_Model], given: "GivenFacts") -> RowsByTable:
    tables: RowsByTable = {"runs": [], "results": []}
    for model in models:
        tables["runs"].append(_run(model, given))
        for name, rows in model.result.loaded_tables().items():
            table = TABLES[name]
            tables.setdefault(name, []).extend(
                _renamed_chunk(row, model.place) if isinstance(table, ColumnTable) else _renamed(row, model.place)
                for row in rows
            )
    return tables


def _renamed(row: object, place: Place) -> object:
    return replace(row, run=place.run, checkpoint=place.checkpoint)  # type: ignore[type-var]


def _renamed_chunk(chunk: object, place: Place) -> object:
    import pyarrow as pa

    whole: pa.Table = chunk
    for name, text in (("run", place.run), ("checkpoint", place.checkpoint)):
        column = pa.array([text] * whole.num_rows, type=pa.string())
        whole = whole.set_column(whole.column_names.index(name), name, column)
    return whole


def _run(model: _Model, given: "GivenFacts") -> Run:
    """The row of runs.csv: of a checkpoint of ours with its settings, of any other model with what is known."""
    result, place = model.result, model.place
    said = given.of(result.name, place.run)
    tokens_a_step = said.pop("tokens_per_step", None)
    cells = _own_run(model) if result.facts["in_a_run"] else _other_model(place, result)
    if tokens_a_step is not None and "tokens" not in said:
        cells["tokens"] = training_tokens(place, int(tokens_a_step))
    outcomes = {name: outcome["value"] for name, outcome in result.facts.get("outcomes", {}).items()}
    row: Run = RUNS.row(**{**outcomes, **cells, **_measured(result), **said, "run": place.run})
    RUNS.check_row(row)
    return row


def _measured(result: Result) -> dict[str, Cell]:
    """What every measurement knows, of whichever origin."""
    facts, scores = result.facts, result.facts["splits"]["validation"]
    tokenizer = facts.get("tokenizer", {}).get("corpus")
    return {
        "val_loss": scores.get("loss"),
        "val_accuracy": scores.get("accuracy"),
        "perplexity": scores.get("perplexity"),
        "bits_per_byte": scores.get("bits_per_byte"),
        "vocabulary": facts["classes"],
        "tokenizer": None if tokenizer is None else tokenizer[:8],
        "corpus": _text(result),
    }


def _other_model(place: Place, result: Result) -> dict[str, Cell]:
    facts = result.facts
    cells: dict[str, Cell] = dict.fromkeys(RUNS.columns)
    return cells | {
        "checkpoint": place.checkpoint,
        "family": facts.get("family"),
        "width": facts.get("width"),
        "depth": facts.get("depth"),
        "parameters": facts.get("parameters"),
        "seed": seed_of(place),
        "epoch": 0.0 if place.step == 0 else None,
        "tokens": training_tokens(place),
        "train_loss": facts["splits"]["train"].get("loss"),
        "step": place.step,
        "quantised": facts.get("quantised"),
    }


def _own_run(model: _Model) -> dict[str, Cell]:
    """The row that a suite would have, from the run's own records; without these, what the measurement knows."""
    folder = RunFolder(model.stored.path.parent.parent)
    record = folder.record() if folder.exists() else None
    known = None if record is None else folder.checkpoint(model.place.checkpoint, verify=False)
    if record is None or known is None:
        cells, trained = _other_model(model.place, model.result), model.result.facts.get("trained")
        if trained is None:
            return cells | {"step": None, "epoch": _epoch(model.place.checkpoint)}
        return cells | {name: trained[name] for name in ("step", "epoch", "tokens", "seed")}
    own = run_row(folder.path.name, record, known)
    return {name: cell for name, cell in own.items() if cell is None or isinstance(cell, str | int | float)}


def _epoch(checkpoint: str) -> float | None:
    """The epoch that the name of a checkpoint of ours is."""
    try:
        return float(checkpoint)
    except ValueError:
        return None


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
    is_count = base_type(RUNS.type_of(column)) is int
    if is_count and re.fullmatch(r"[0-9.]+[eE]\+?[0-9]{1,2}", text) and float(text).is_integer():
        text = str(int(float(text)))
    return RUNS.cell(column, text)
