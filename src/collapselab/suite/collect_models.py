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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Annotated, Any, NamedTuple, cast

from pydantic import BeforeValidator
from typing_extensions import TypedDict  # that of typing only from Python 3.12 on

from collapselab.disk import first_error, sha256
from collapselab.errors import ConfigError, DamagedError, RunError
from collapselab.records.facts import Facts
from collapselab.records.measurement import Result
from collapselab.records.options import count
from collapselab.records.result_folder import OTHERS, find_results
from collapselab.records.run import RunFolder
from collapselab.records.table import Cell, Name, Table, base_type
from collapselab.records.tables import RUNS, RowsByTable, Run, newest_versions, write_tables
from collapselab.suite.collect import run_row

MIXES = ("corpora", "options")
NO_NUMBERS = ("batch", "shard_classes", "on", "against")
"""Options by which results may differ: they decide how it is computed, or add what has a column of its own."""

TOKENS_A_STEP = {"EleutherAI/pythia-*": 2_097_152}
"""Tokens of a training step, by name. Pythia: 1,024 sequences of 2,048 (Biderman et al. 2023, arXiv:2304.01373)."""

STEP = re.compile(r"(?:global[-_]?step|step|checkpoint|ckpt|iter)[-_]?([0-9]{1,15})(?![0-9])", re.IGNORECASE)
TOKENS = re.compile(r"tokens?[-_]?([0-9]{1,6}(?:\.[0-9]{1,6})?)([KMBT])(?![A-Za-z])", re.IGNORECASE)
SEED = re.compile(r"(?:^|[-_])seed[-_]?([0-9]{1,9})(?:$|[-_@/])", re.IGNORECASE)
UNITS = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}

MEASURED = {"run", "checkpoint", "why", "val_loss", "train_loss", "val_accuracy", "perplexity", "seconds"}
"""Columns of runs.csv that `models.csv` cannot give; all others become columns as they are."""

Given = list[tuple[str, dict[str, Cell]]]
"""The lines of a `models.csv`: a name or pattern of models, and what its author says of them."""


class CollectedModels(NamedTuple):
    """What was written, and what a reader should know of it."""

    models: int
    runs: int
    notes: list[str]


class Place(NamedTuple):
    """Which run a model belongs to, and which checkpoint of it it is."""

    run: str
    checkpoint: str
    step: int | None


class _Model(NamedTuple):
    """A measured model, the file it is in, and its place among the others."""

    result: Result
    path: Path
    place: Place


def collect_models(
    folders: Sequence[str | Path],
    out: str | Path,
    *,
    facts: str | Path | None = None,
    mix: Iterable[str] = (),
) -> CollectedModels:
    """Join the results in folders and files into the tables of the folder `out`, ready for `analyze` and `report`.

    >>> from collapselab import collect_models
    >>> collect_models(["suites/tiny"], "atlas").runs
    5

    `facts` is a table of what is known of models beside their numbers; `mix` names what may differ between them:
    corpora, options.
    """
    allowed, given = set(mix), [] if facts is None else read_facts(facts)
    if unknown := sorted(allowed - set(MIXES)):
        raise ConfigError(f"mix: {unknown[0]!r} is not something that may differ. It is one of {', '.join(MIXES)}.")
    for name, what in OTHERS.items():
        if (Path(out) / name).exists():
            raise ConfigError(f"{out}: the folder of {what}; the tables need one of their own. Name another.")
    models = _found(folders)
    if "corpora" not in allowed:
        _refuse("corpora", "texts or lengths of block", models, _text)
    if "options" not in allowed:
        _refuse("options", "options", models, _options)
    notes = [f"{model.result.name}: {why}; left out." for model in models if (why := model.result.outdated())]
    models = [model for model in models if model.result.outdated() is None]
    if not models:
        raise RunError(f"{notes[0]} None is left. Measure again.")
    models = _named(models, by_corpus="corpora" in allowed)
    tables = _tables(models, given)
    tables["results"], older = newest_versions(tables["results"])
    names = {name for model in models for name in (model.result.name, model.place.run)}
    unused = [pattern for pattern, _ in given if not any(fnmatchcase(name, pattern) for name in names)]
    notes += [*older, *(f"{facts}: no model is called {pattern}." for pattern in unused)]
    made_from = [(str(model.path), sha256(model.path)) for model in models]
    write_tables(out, tables, made_from=list(dict.fromkeys(made_from)))
    return CollectedModels(len(tables["runs"]), len({run["run"] for run in tables["runs"]}), notes)


def _found(folders: Sequence[str | Path]) -> list[_Model]:
    """Every result in these places, each once, in the order of runs and steps."""
    by_path = {
        (stored.path.resolve(), stored.result.name): stored for place in folders for stored in find_results(place)
    }
    models = [_Model(stored.result, stored.path, named_place(stored.result.facts)) for stored in by_path.values()]
    return sorted(models, key=lambda model: (model.place.run, model.place.step or 0, model.place.checkpoint))


def _refuse(flag: str, what: str, models: list[_Model], key: Callable[[Result], str]) -> None:
    """ConfigError where results differ in the key, with the groups that there are."""
    groups: dict[str, list[str]] = {}
    for model in models:
        groups.setdefault(key(model.result), []).append(model.result.name)
    if len(groups) < 2:
        return
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))
    parts = [f"{words} ({', '.join(names[:3])}{' …' if len(names) > 3 else ''})" for words, names in largest]
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


def _named(models: list[_Model], *, by_corpus: bool) -> list[_Model]:
    """Models whose runs have the shortest names that tell them apart; with several corpora also by corpus."""
    short: dict[str, set[str]] = {}
    for model in models:
        short.setdefault(_short(model), set()).add(model.place.run)
    several = by_corpus and len({_text(model.result) for model in models}) > 1
    named: dict[tuple[str, str], _Model] = {}
    for model in models:
        name = _short(model) if len(short[_short(model)]) == 1 else model.place.run
        name = f"{name} on {_text(model.result)}" if several else name
        key = (name, model.place.checkpoint)
        if key in named:
            places = f"{named[key].path} and {model.path}"
            raise ConfigError(f"collect: {' '.join(key)} is there twice, in {places}. Remove one of them.")
        named[key] = model._replace(place=model.place._replace(run=name))
    return list(named.values())


def _short(model: _Model) -> str:
    facts = model.result.facts
    is_path = not facts["in_a_run"] and facts["checkpoint"] == "-"
    return PurePath(model.place.run).name or model.place.run if is_path else model.place.run


def _tables(models: list[_Model], given: Given) -> RowsByTable:
    tables: RowsByTable = {"runs": [], "results": []}
    for model in models:
        try:
            tables["runs"].append(_run(model, given))
        except (LookupError, ValueError) as error:
            what = first_error(error) if isinstance(error, ValueError) else f"{error} is missing"
            raise DamagedError(f"{model.path}: its facts, or those given, are invalid ({what}).") from error
        for name, rows in model.result.loaded_tables().items():
            tables.setdefault(name, []).extend(renamed(row, model.place.run, model.place.checkpoint) for row in rows)
    return tables


def renamed(row: Any, run: str, checkpoint: str) -> Any:
    """Return a row, or a table of many, under other names of its run and checkpoint."""
    names = {"run": run, "checkpoint": checkpoint}
    if not hasattr(row, "set_column"):
        return replace(row, **names)
    import pyarrow as pa

    for name, text in names.items():
        row = row.set_column(row.column_names.index(name), name, pa.repeat(text, row.num_rows))
    return row


def _run(model: _Model, given: Given) -> Run:
    """The row of runs.csv: of a checkpoint of ours with its settings, of any other model with what is known."""
    result, place = model.result, model.place
    said: dict[str, Cell] = {}
    for pattern, cells in given:  # later lines count more
        if any(fnmatchcase(name, pattern) for name in (result.name, place.run)):
            said |= cells
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
    folder = RunFolder(model.path.parent.parent)
    record = folder.record() if folder.exists() else None
    known = None if record is None else folder.checkpoint(model.place.checkpoint, verify=False)
    if record is None or known is None:
        cells, trained = _other_model(model.place, model.result), model.result.facts.get("trained")
        if trained is None:
            return cells | {"step": None, "epoch": float(model.place.checkpoint)}
        return cells | {name: trained[name] for name in ("step", "epoch", "tokens", "seed")}
    return dict(cast("dict[str, Cell]", run_row(folder.path.name, record, known)))


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


def _fact_type(name: str) -> Any:
    """The type of a column of `models.csv`; a count may be written as 5e9."""
    column = "tokens" if name == "tokens_per_step" else name
    hint = RUNS.columns.get(column) or RUNS.further_type(column)
    return Annotated[hint, BeforeValidator(count)] if base_type(hint) is int else hint


class ModelLine(TypedDict):
    """A line of `models.csv`."""

    model: Name


MODELS: Table[Any] = Table("models", ModelLine, key=("model",), further="model", further_type=_fact_type)


def read_facts(path: str | Path) -> Given:
    """Return the lines of a `models.csv`; a UserError names the line and column of what is wrong."""
    lines = MODELS.read(path)
    if lines and (measured := sorted(MEASURED & lines[0].keys())):
        raise ConfigError(f"{path}: {measured[0]} comes from measuring and cannot be given. Leave the column out.")
    return [(line.pop("model"), {name: cell for name, cell in line.items() if cell is not None}) for line in lines]
