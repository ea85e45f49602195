"""collect: results of any origin → the tables that `analyze` and `report` read.

A folder of results, a run, a suite, a result in a file: each measured model becomes a row of runs.csv, its numbers rows
of results.csv. Models are compared on the same text, each in its own tokens, with the same options: a mix of texts,
options or versions of metrics is refused with what differs, unless it is asked for.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Literal, final

from collapselab.disk import sha256
from collapselab.errors import ConfigError, RunError, did_you_mean
from collapselab.records.measurement import Result
from collapselab.records.result_folder import OTHERS, StoredResult, find_results
from collapselab.records.run import RunFolder
from collapselab.records.table import Cell, ColumnTable
from collapselab.records.tables import RUNS, TABLES, RowsByTable, Run, newest_versions, write_tables
from collapselab.suite.collect import run_row
from collapselab.suite.model_facts import GivenFacts, Place, named_place, seed_of, training_tokens

Mix = Literal["corpora", "options"]
MIXES: tuple[Mix, ...] = ("corpora", "options")
NO_NUMBERS = ("batch", "shard_classes", "on")
"""Options by which results may differ: they decide how it is computed, or add what has a column of its own."""

SHOWN = 3
"""Models of a group that a message names."""


@final
@dataclass(frozen=True)
class CollectedModels:
    """What was written, and what a reader should know of it."""

    models: int
    runs: int
    notes: list[str] = field(default_factory=list)


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


def _tables(models: list[_Model], given: GivenFacts) -> RowsByTable:
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


def _run(model: _Model, given: GivenFacts) -> Run:
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
