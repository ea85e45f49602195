"""YAML → runs: a recipe, strictly checked. An error names the line, and the nearest word that is known. A recipe with
`models:` in place of settings trains nothing: see model_entries.py.

question: Does collapse grow with width and depth?
corpus: corpora/storyworld          # a folder, or {source: storyworld, tokenizer: bpe:2048, block: 128}
base: {lr: 2e-3, epochs: 2}         # settings of every run, those of `collapselab train`
grid: {width: [64, 128], depth: [1, 2]}     # all combinations
zip: {epochs: [1, 10], checkpoints: ["0", "0,6"]}     # side by side, each line with every combination of the grid
arms: [none, "within:+0.1", {label_smoothing: 0.1}]   # each with every run of the recipe: see arms.py
runs: [{width: 256, depth: 4, grid: {seed: [1, 2]}}]  # further ones; each may have a grid and a zip of its own
checkpoints: [0, 0.5, 1]            # or log:20
measure: {bins: 4}                  # options of `collapselab measure`
resources: {gpus: 1, minutes: 600}  # of a cluster's job
primary: {metrics: [cdnv_log], outcome: val_loss, smallest_effect: 0.02}   # registered before the first run
small: {grid: {width: [64]}}        # what is different at --scale small
"""

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import final

from pydantic import JsonValue

from collapselab.core.catalogue import METRICS
from collapselab.errors import ConfigError, did_you_mean
from collapselab.records.options import Options
from collapselab.records.suite import Primary
from collapselab.suite.arms import RecipeArm, parse_arms
from collapselab.suite.recipe_sections import (
    CorpusSpec,
    DataSpec,
    Measure,
    Resources,
    resolved_paths,
    whole_path,
)
from collapselab.suite.recipe_text import (
    LineNumbers,
    Place,
    Written,
    has_control_characters,
    read_yaml,
    short,
)
from collapselab.training.settings import Settings, settings_from

SECTIONS = (
    "question", "corpus", "corpora", "base", "grid", "zip", "arms", "runs", "checkpoints", "models", "data", "measure",
    "resources", "primary", "small"
)  # fmt: skip
OF_TRAINING = ("base", "grid", "zip", "arms", "runs", "checkpoints", "primary")
"""Sections that mean nothing where models are measured that are there."""
SCALES = ("full", "small")
THE_CORPUS = "corpus"
"""The name of a suite's corpus where it has one alone; with several, the setting that chooses among them."""

MOST_RUNS = 100_000

_CORPUS_NAME = re.compile(r"\w[\w. +-]{0,99}")
"""The name of a corpus is part of the name of its folder."""

Section = dict[str, JsonValue]


@final
@dataclass(frozen=True)
class Suite:
    """A recipe at one scale, with all its runs.

    >>> from collapselab import load_suite
    >>> small = load_suite("demo", scale="small")
    >>> small.name, len(small.runs) < len(load_suite("demo").runs)
    ('demo', True)
    """

    name: str
    scale: str
    question: str
    document: Section
    """The recipe at this scale as plain data; what two recipes are compared by."""
    corpora: dict[str, CorpusSpec]
    runs: list[tuple[Settings, str]]
    """The settings of each run, and the name of its corpus."""
    measure: Options
    resources: Resources
    primary: Primary | None = None
    """What its effects are judged by; None where the recipe has neither arms nor a primary."""
    arms: tuple[RecipeArm, ...] = ()
    """What its runs of one seed differ in; empty where the recipe names none."""
    models: tuple[str, ...] = ()
    """Names and patterns of models that are measured; where there are any, nothing is trained."""
    data: DataSpec | None = None
    """The text that each model is measured on in its own tokens; None where there are corpora."""


def shipped_recipes() -> dict[str, str]:
    """The recipes that come with the package: name → text.

    >>> from collapselab import shipped_recipes
    >>> "question:" in shipped_recipes()["demo"]
    True
    """
    return {name: (_shipped_folder() / f"{name}.yaml").read_text(encoding="utf-8") for name in shipped_names()}


def _shipped_folder() -> Traversable:
    return files("collapselab.suite") / "recipes"


def is_shipped(name: str | Path) -> bool:
    """Whether text names a recipe that comes with the package; a Path is never one."""
    return isinstance(name, str) and name in shipped_names()


def shipped_names() -> list[str]:
    """The names of the recipes that come with the package."""
    files = (entry.name for entry in _shipped_folder().iterdir())
    return sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))


def load_suite(name: str | Path, *, scale: str = "full") -> Suite:
    """The suite of a YAML file, or of a recipe that is shipped.

    >>> from collapselab import load_suite
    >>> suite = load_suite("demo")
    >>> suite.scale, suite.runs[0][0].width
    ('full', 16)
    """
    path, recipes = Path(name), shipped_recipes()
    if path.suffix in (".yaml", ".yml") or (path.is_file() and not is_shipped(name)):
        if not path.is_file():
            raise ConfigError(f"{path}: no such file. {_shipped_hint(path.stem, recipes)}")
        if has_control_characters(path.stem):
            raise ConfigError(f"{str(path)!r}: a line break or another control character in the name of a recipe.")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: not text ({error}).") from error
        return parse_suite(text, name=path.stem, where=str(path), scale=scale, beside=path.resolve().parent)
    if not is_shipped(name):
        raise ConfigError(f"{name}: not a recipe, and no such file. {_shipped_hint(str(name), recipes)}")
    return parse_suite(recipes[str(name)], name=str(name), scale=scale)


def parse_suite(
    text: str, *, name: str, where: str | None = None, scale: str = "full", beside: Path | None = None
) -> Suite:
    """The suite that a recipe's text describes; relative paths are looked for in the folder `beside`."""
    document, lines = read_yaml(text, where or name)
    return _Recipe(where or name, document, lines).suite(name, scale, beside)


def suite_from(document: Section, *, name: str, scale: str, where: str | None = None) -> Suite:
    """The suite of a recipe that is plain data already, as suite.json keeps it."""
    return _Recipe(where or name, document, {}).suite(name, scale, None, merged=True)


def _shipped_hint(name: str, recipes: dict[str, str]) -> str:
    hint = f"There are {', '.join(recipes)}, or the path of a YAML file."
    return f"{did_you_mean(name, recipes)} {hint}".lstrip()


@final
@dataclass(frozen=True)
class _Grid:
    """All combinations of the values of `axes`, each with every line of `zipped`, on top of `base`."""

    path: Place
    base: Section
    axes: dict[str, list[JsonValue]]
    zipped: dict[str, list[JsonValue]]

    def combinations(self) -> Iterator[Section]:
        lines = zip(*self.zipped.values(), strict=True) if self.zipped else [()]
        for line, point in itertools.product(lines, itertools.product(*self.axes.values())):
            yield self.base | dict(zip(self.axes, point, strict=True)) | dict(zip(self.zipped, line, strict=True))


@final
class _Recipe:
    """Turns the document of a recipe into a suite."""

    def __init__(self, where: str, document: JsonValue, lines: LineNumbers) -> None:
        self.written = Written(where, lines)
        self.document = self.written.mapping((), document, SECTIONS, "a section of a recipe")
        self._checked: set[tuple[str, str]] = set()
        self._runs_counted = 0

    def suite(self, name: str, scale: str, beside: Path | None, *, merged: bool = False) -> Suite:
        if scale not in SCALES:
            raise ConfigError(f"scale: {scale!r} is not one. There are {' and '.join(SCALES)}.")
        if not merged:
            self._to_scale(scale)
        question = self.document.get("question")
        if not isinstance(question, str) or not question.strip():
            self.written.fail(("question",), "every recipe asks one, in a sentence.")
        question = " ".join(question.split())
        if has_control_characters(question):
            self.written.fail(("question",), f"{question!r} has a control character.")
        corpora = {
            name: resolved_paths(spec, beside) if beside or not merged else spec
            for name, spec in self._corpora().items()
        }
        models = self._models()
        arms = self._arms(corpora)
        runs = [] if models else list(self._runs(corpora, arms or (RecipeArm({}),)))
        primary = self._primary()
        document = self.document | {"corpora": {name: spec.model_dump(mode="json") for name, spec in corpora.items()}}
        document.pop("corpus", None)
        if primary is not None:
            document["primary"] = primary.model_dump(mode="json")
        resources = self.written.model(Resources, ("resources",), self.document.get("resources", {}), "a resource")
        measure = self._measure()
        data = self._data(beside) if models else None
        return Suite(name, scale, question, document, corpora, runs, measure, resources, primary, arms, models, data)

    def _to_scale(self, scale: str) -> None:
        """Replace sections of the recipe by those in `small:`."""
        small = self.document.pop("small", None)
        if small is None:
            if scale == "full":
                return
            raise ConfigError(f"{self.written.name}: has no section `small`; it runs at full scale only.")
        changes = self.written.mapping(("small",), small, SECTIONS[:-1], "a section of a recipe")
        if scale == "full":
            return
        for section, values in changes.items():
            old = self.document.get(section)
            if isinstance(old, dict) and isinstance(values, dict) and section not in ("zip", "corpora"):
                values = old | values
            self.document[section] = values
        self.written.raise_lines("small")

    def _corpora(self) -> dict[str, CorpusSpec]:
        single, several = self.document.get("corpus"), self.document.get("corpora")
        if "data" in self.document and not single and not several:
            return {}
        if (single is None) == (several is None):
            self.written.fail(("corpus",), "a recipe has either one corpus or several corpora.")
        if several is None:
            return {THE_CORPUS: self._corpus(("corpus",), single)}
        if not isinstance(several, dict) or not several:
            self.written.fail(("corpora",), f"{short(several)} is not valid: names with a corpus each are needed.")
        for name in several:
            if not _CORPUS_NAME.fullmatch(name):
                self.written.fail(
                    ("corpora", name), "not a name for a corpus. Letters, digits and _ . + - are allowed, and spaces."
                )
        return {name: self._corpus(("corpora", name), spec) for name, spec in several.items()}

    def _corpus(self, path: Place, spec: JsonValue) -> CorpusSpec:
        if isinstance(spec, str):
            spec = {"folder": spec}
        corpus = self.written.model(CorpusSpec, path, spec, "a setting of a corpus")
        if (corpus.folder is None) == (not corpus.sources):
            self.written.fail(path, "a corpus is a folder, or has a source.")
        return corpus

    def _models(self) -> tuple[str, ...]:
        if "models" not in self.document:
            if "data" in self.document:
                self.written.fail(("data",), "is for `models`; runs are trained on a corpus.")
            return ()
        for section in OF_TRAINING:
            if section in self.document:
                self.written.fail((section,), "a recipe with `models` trains nothing. Leave it out.")
        names = self.document["models"]
        if not isinstance(names, list) or not names:
            self.written.fail(("models",), f"{short(names)} is not valid: a list with at least one model is needed.")
        for number, name in enumerate(names):
            if not isinstance(name, str) or not name or has_control_characters(name):
                self.written.fail(("models", number), f"{short(name)} is not the name of a model.")
        return tuple(str(name) for name in names)

    def _data(self, beside: Path | None) -> DataSpec | None:
        if "data" not in self.document:
            return None
        data = self.written.model(DataSpec, ("data",), self.document["data"], "a setting of data")
        return data.model_copy(update={"source": [whole_path(name, beside) for name in data.sources]})

    def _arms(self, corpora: dict[str, CorpusSpec]) -> tuple[RecipeArm, ...]:
        if "arms" not in self.document:
            return ()
        return parse_arms(
            self.written,
            self.document["arms"],
            lambda path, name, value: self._setting(path, name, value, corpora),
        )

    def _runs(self, corpora: dict[str, CorpusSpec], arms: tuple[RecipeArm, ...]) -> Iterator[tuple[Settings, str]]:
        base = self._settings(("base",), self.document.get("base", {}), corpora)
        if "checkpoints" in self.document:
            base["checkpoints"] = self._checkpoints(self.document["checkpoints"])
        listed = self.document.get("runs", [])
        if not isinstance(listed, list) or ("runs" in self.document and not listed):
            self.written.fail(("runs",), f"{short(listed)} is not valid: a list with at least one run is needed.")
        grids = []
        if {"grid", "zip"} & self.document.keys() or not listed:
            grids.append(self._grid((), self.document, base, corpora))
        for number, entry in enumerate(listed):
            path = ("runs", number)
            run = self.written.mapping(path, entry)
            own = {key: value for key, value in run.items() if key not in ("grid", "zip")}
            grids.append(self._grid(path, run, base | self._settings(path, own, corpora), corpora))
        self._check_arms(arms, grids)
        for grid in grids:
            for values in grid.combinations():
                for arm in arms:
                    yield self._run(grid.path, values | arm.settings, corpora)

    def _check_arms(self, arms: tuple[RecipeArm, ...], grids: "list[_Grid]") -> None:
        """Refuse an arm that would undo what an axis varies, and penalties that not all arms have alike."""
        axes = {name for grid in grids for name in (*grid.axes, *grid.zipped)}
        for number, arm in enumerate(arms):
            for name in axes & arm.settings.keys():
                self.written.fail(("arms", number), f"{arm.name} sets {name}, which the grid varies. Leave one out.")
            if "intervene" in arm.settings and any("intervene" in grid.base for grid in grids):
                self.written.fail(
                    ("arms", number), f"{arm.name} has doses, and so have the runs that it is for. Leave out theirs."
                )
        self._count_runs(("arms",), (len(arms) - 1) * self._runs_counted)

    def _grid(self, path: Place, holder: Section, base: Section, corpora: dict[str, CorpusSpec]) -> "_Grid":
        axes = self._axes((*path, "grid"), holder, corpora)
        zipped = self._axes((*path, "zip"), holder, corpora)
        for name in axes.keys() & zipped.keys():
            self.written.fail((*path, "zip", name), "is in the grid too. Leave one out.")
        lengths = {name: len(values) for name, values in zipped.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            self.written.fail((*path, "zip"), f"its lists need the same length, but {listed} values.")
        self._count_runs(path, max(lengths.values(), default=1) * math.prod(map(len, axes.values())))
        return _Grid(path, base, axes, zipped)

    def _count_runs(self, path: Place, runs: int) -> None:
        """Called before the first run is built: ten short lists make more runs than memory can hold."""
        self._runs_counted += runs
        if self._runs_counted > MOST_RUNS:
            self.written.fail(
                path or ("grid",),
                f"the recipe has {self._runs_counted:,} runs or more; {MOST_RUNS:,} are the most. Ask for fewer, "
                "or split it into several recipes.",
            )

    def _run(self, path: Place, values: Section, corpora: dict[str, CorpusSpec]) -> tuple[Settings, str]:
        corpus = values.pop(THE_CORPUS, next(iter(corpora)) if len(corpora) == 1 else None)
        if not isinstance(corpus, str):
            self.written.fail(path or ("base",), f"no corpus is chosen for the runs. There are {', '.join(corpora)}.")
        try:
            return settings_from(values), corpus
        except ConfigError as error:
            shown = ", ".join(f"{name} {value}" for name, value in values.items())
            raise ConfigError(f"{self.written.at(path)}: the run with {shown or 'no settings'}: {error}") from error

    def _axes(self, path: Place, holder: Section, corpora: dict[str, CorpusSpec]) -> dict[str, list[JsonValue]]:
        if path[-1] not in holder:
            return {}
        settings = self.written.mapping(path, holder[str(path[-1])])
        if not settings:
            self.written.fail(path, "is empty. Give it settings with their values, or leave it out.")
        axes = {}
        for name, values in settings.items():
            if not isinstance(values, list):
                self.written.fail(
                    (*path, name), f"{short(values)} is not a list. Write it in brackets, [ ], or put it under base."
                )
            if not values:
                self.written.fail((*path, name), "has no values.")
            for number, value in enumerate(values):
                self._setting((*path, name, number), name, value, corpora)
            axes[name] = values
        return axes

    def _settings(self, path: Place, values: JsonValue, corpora: dict[str, CorpusSpec]) -> Section:
        settings = self.written.mapping(path, values)
        for name, value in settings.items():
            self._setting((*path, name), name, value, corpora)
        return settings

    def _setting(self, path: Place, name: str, value: JsonValue, corpora: dict[str, CorpusSpec]) -> None:
        if name == THE_CORPUS:
            if not isinstance(value, str) or value not in corpora:
                hint = did_you_mean(str(value), corpora, otherwise=f"There are {', '.join(corpora)}.")
                self.written.fail(path, f"{short(value)} is not a corpus of this recipe. {hint}")
            return
        key = (name, repr(value))
        if key not in self._checked:
            try:
                settings_from({"width": 2, "depth": 1, name: value})
            except ConfigError as error:
                self.written.fail(path, str(error).removeprefix(f"{name}: ").removeprefix(f"{name} "))
            self._checked.add(key)

    def _checkpoints(self, value: JsonValue) -> str:
        epochs = value if isinstance(value, list) else [value]
        numbers = [epoch for epoch in epochs if isinstance(epoch, int | float) and not isinstance(epoch, bool)]
        if len(numbers) == len(epochs) and all(map(math.isfinite, numbers)):
            return ",".join(f"{epoch:g}" for epoch in numbers)
        if isinstance(value, str):
            return value
        return self.written.fail(
            ("checkpoints",), f"{short(value)} is not valid: write them as in [0, 1, 3] or as log:20."
        )

    def _measure(self) -> Options:
        options = self.written.model(Measure, ("measure",), self.document.get("measure", {}), "an option of measure")
        try:
            return Options(**options.model_dump())
        except ConfigError as error:
            return self.written.fail(("measure",), str(error))

    def _primary(self) -> Primary | None:
        if not {"primary", "arms"} & self.document.keys():
            return None
        path = ("primary",)
        primary = self.written.model(Primary, path, self.document.get("primary", {}), "a choice of primary")
        for number, metric in enumerate(primary.metrics):
            place = (*path, "metrics", number)
            if metric not in METRICS:
                self.written.fail(place, f"{short(metric)} is not a metric. {did_you_mean(metric, METRICS)}".rstrip())
            if metric in primary.metrics[:number]:
                self.written.fail(place, f"{metric} is there twice.")
        return primary
