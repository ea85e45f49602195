"""YAML → runs: a recipe, strictly checked. An error names the line, and the nearest word that is known. A recipe with
`models:` in place of settings trains nothing: see ModelEntry in plan.py.

question: Does collapse grow with width and depth?
corpus: corpora/storyworld          # a folder, or {source: storyworld, tokenizer: bpe:2048, block: 128}
base: {lr: 2e-3, epochs: 2}         # settings of every run, those of `collapselab train`
grid: {width: [64, 128], depth: [1, 2]}     # all combinations
zip: {epochs: [1, 10], checkpoints: ["0", "0,6"]}     # side by side, each line with every combination of the grid
arms: [none, "within:+0.1", {label_smoothing: 0.1}]   # what runs of one seed differ in: each with every run
runs: [{width: 256, depth: 4, grid: {seed: [1, 2]}}]  # further ones; each may have a grid and a zip of its own
checkpoints: [0, 0.5, 1]            # or log:20
measure: {bins: 4}                  # options of `collapselab measure`
resources: {gpus: 1, minutes: 600}  # of a cluster's job
primary: {metrics: [cdnv_log], outcome: val_loss, smallest_effect: 0.02}   # registered before the first run
small: {grid: {width: [64]}}        # what is different at --scale small
"""

import itertools
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
from collapselab.suite.recipe_text import Place, Section, Written, read_yaml, short
from collapselab.suite.sections import NESTED, SECTIONS, CorpusSpec, DataSpec, Resources, Sections, whole_path
from collapselab.training.heads import HEADS
from collapselab.training.interventions import INTERVENTIONS
from collapselab.training.optimizers import OPTIMIZERS
from collapselab.training.settings import Settings, settings_from

OF_TRAINING = ("base", "grid", "zip", "arms", "runs", "checkpoints", "primary")
"""Sections that mean nothing where models are measured that are there."""
SCALES = ("full", "small")
THE_CORPUS = "corpus"
"""The name of a suite's corpus where it has one alone; with several, the setting that chooses among them."""

CONTROL = "none"
NOT_OF_ARMS = ("seed", "data_seed", "corpus", "checkpoints", "precision")
"""What an arm and its control share."""


@final
@dataclass(frozen=True)
class RecipeArm:
    """What distinguishes some runs of a suite from the others: the settings that replace the base's."""

    settings: Section

    @property
    def name(self) -> str:
        """`none`, doses, and other settings, as in within:+0.1 · head frozen-code · tied False."""
        doses = self.settings.get("intervene", [])
        texts = [str(dose) for dose in doses] if isinstance(doses, list) else [str(doses)]
        others = [f"{name} {value}" for name, value in self.settings.items() if name != "intervene"]
        return " · ".join([*texts, *others]) or CONTROL

    @property
    def is_control(self) -> bool:
        return not self.settings


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
    """Return the recipes that come with the package: name → text.

    >>> from collapselab import shipped_recipes
    >>> "question:" in shipped_recipes()["demo"]
    True
    """
    return {name: (_shipped_folder() / f"{name}.yaml").read_text(encoding="utf-8") for name in shipped_names()}


def shipped_names() -> list[str]:
    """The names of the recipes that come with the package."""
    files = (entry.name for entry in _shipped_folder().iterdir())
    return sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))


def _shipped_folder() -> Traversable:
    return files("collapselab.suite") / "recipes"


def is_shipped(name: str | Path) -> bool:
    """Whether text names a recipe that comes with the package; a Path is never one."""
    return isinstance(name, str) and name in shipped_names()


def load_suite(name: str | Path, *, scale: str = "full") -> Suite:
    """Return the suite of a YAML file, or of a recipe that is shipped.

    >>> from collapselab import load_suite
    >>> suite = load_suite("demo")
    >>> suite.scale, suite.runs[0][0].width
    ('full', 16)
    """
    path = Path(name)
    is_file = path.is_file() and not is_shipped(name)
    if not is_file and path.suffix not in (".yaml", ".yml") and is_shipped(name):
        return parse_suite(
            (_shipped_folder() / f"{name}.yaml").read_text(encoding="utf-8"), name=str(name), scale=scale
        )
    if not is_file:
        hint = f"Name a shipped recipe ({', '.join(shipped_names())}) or a YAML file."
        near = did_you_mean(path.stem, shipped_names())
        raise ConfigError(f"{name}: not a recipe, and no such file. {near} {hint}".replace("  ", " "))
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not text ({error}).") from error
    return parse_suite(text, name=path.stem, where=str(path), scale=scale, beside=path.resolve().parent)


def parse_suite(
    text: str, *, name: str, where: str | None = None, scale: str = "full", beside: Path | None = None
) -> Suite:
    """Return the suite that a recipe's text describes; relative paths are looked for in the folder `beside`."""
    document, lines = read_yaml(text, where or name)
    if scale not in SCALES:
        raise ConfigError(f"scale must be 'full' or 'small', got {scale!r}")
    written = Written(where or name, lines)
    return _Recipe(written, _at_scale(written, document, scale)).suite(name, scale, beside)


def suite_from(document: Section, *, name: str, scale: str, where: str | None = None) -> Suite:
    """Return the suite of a recipe that is plain data already, as suite.json keeps it."""
    return _Recipe(Written(where or name, {}), document).suite(name, scale, None, merged=True)


def _at_scale(written: Written, document: JsonValue, scale: str) -> Section:
    """The recipe without the section `small`, whose values replace the others at small scale."""
    sections = written.mapping((), document, SECTIONS, "a section of a recipe")
    small = sections.pop("small", None)
    if small is None and scale == "small":
        raise ConfigError(f"{written.name}: has no section `small`; it runs at full scale only.")
    if small is None:
        return sections
    changes = written.mapping(("small",), small, SECTIONS[:-1], "a section of a recipe")
    if scale == "full":
        return sections
    for section, values in changes.items():
        old = sections.get(section)
        if isinstance(old, dict) and isinstance(values, dict) and section not in ("zip", "corpora"):
            values = old | values
        sections[section] = values
    written.lines |= {path[1:]: line for path, line in written.lines.items() if path[:1] == ("small",)}
    return sections


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

    def __init__(self, written: Written, document: Section) -> None:
        self.written, self.document = written, document
        self.sections = written.model(Sections, document, NESTED, "a section of a recipe")
        self.corpora: dict[str, CorpusSpec] = {}
        self._checked: set[tuple[str, str]] = set()

    def suite(self, name: str, scale: str, beside: Path | None, *, merged: bool = False) -> Suite:
        sections = self.sections
        corpora = self._corpora()
        self.corpora = corpora if merged else {name: spec.resolved(beside) for name, spec in corpora.items()}
        models, data = self._models(), sections.data
        if data is not None:
            data = data.model_copy(update={"source": [whole_path(name, beside) for name in data.sources]})
        arms = self._arms()
        runs = [] if models else list(self._runs(arms or [RecipeArm({})]))
        primary = self._primary()
        document = self.document | {
            "corpora": {name: one.model_dump(mode="json") for name, one in self.corpora.items()}
        }
        document.pop("corpus", None)
        if primary is not None:
            document["primary"] = primary.model_dump(mode="json")
        try:
            options = Options(**sections.measure.model_dump())
        except ConfigError as error:
            self.written.fail(("measure",), str(error))
        return Suite(
            name=name,
            scale=scale,
            question=" ".join(sections.question.split()),
            document=document,
            corpora=self.corpora,
            runs=runs,
            measure=options,
            resources=sections.resources,
            primary=primary,
            arms=tuple(arms),
            models=models,
            data=data,
        )

    def _corpora(self) -> dict[str, CorpusSpec]:
        single, several = self.sections.corpus, self.sections.corpora or None
        if self.sections.data is not None and single is None and several is None:
            return {}
        if (single is None) == (several is None):
            self.written.fail(("corpus",), "a recipe has either one corpus or several corpora.")
        given = several if single is None else {THE_CORPUS: single}
        corpora = {}
        for name, spec in (given or {}).items():
            corpora[name] = CorpusSpec(folder=spec) if isinstance(spec, str) else spec
            if (corpora[name].folder is None) == (not corpora[name].sources):
                place = ("corpus",) if several is None else ("corpora", name)
                self.written.fail(place, "a corpus is a folder, or has a source.")
        return corpora

    def _models(self) -> tuple[str, ...]:
        if self.sections.models is None and self.sections.data is not None:
            self.written.fail(("data",), "is for `models`; runs are trained on a corpus.")
        for section in OF_TRAINING:
            if self.sections.models is not None and section in self.document:
                self.written.fail((section,), "a recipe with `models` trains nothing. Leave it out.")
        return tuple(self.sections.models or ())

    def _runs(self, arms: list[RecipeArm]) -> Iterator[tuple[Settings, str]]:
        base = self._settings(("base",), self.sections.base)
        checkpoints = self.sections.checkpoints
        if checkpoints is not None:
            epochs = checkpoints if isinstance(checkpoints, list) else [checkpoints]
            base["checkpoints"] = ",".join(one if isinstance(one, str) else f"{one:g}" for one in epochs)
        grids, runs = [], self.sections.runs or []
        if {"grid", "zip"} & self.document.keys() or not runs:
            grids.append(self._grid((), self.document.get("grid"), self.document.get("zip"), base))
        for number, run in enumerate(runs):
            path = ("runs", number)
            own = {key: value for key, value in run.items() if key not in ("grid", "zip")}
            grids.append(self._grid(path, run.get("grid"), run.get("zip"), base | self._settings(path, own)))
        axes = {name for grid in grids for name in (*grid.axes, *grid.zipped)}
        for number, arm in enumerate(arms):
            for name in axes & arm.settings.keys():
                self.written.fail(("arms", number), f"{arm.name} sets {name}, which the grid varies. Leave one out.")
            if "intervene" in arm.settings and any("intervene" in grid.base for grid in grids):
                self.written.fail(("arms", number), f"{arm.name} has doses, and so have its runs. Leave out theirs.")
        for grid in grids:
            for values in grid.combinations():
                for arm in arms:
                    yield self._run(grid.path, values | arm.settings)

    def _grid(self, path: Place, grid: JsonValue, zipped: JsonValue, base: Section) -> _Grid:
        axes, zipped_axes = self._axes((*path, "grid"), grid), self._axes((*path, "zip"), zipped)
        for name in axes.keys() & zipped_axes.keys():
            self.written.fail((*path, "zip", name), "is in the grid too. Leave one out.")
        lengths = {name: len(values) for name, values in zipped_axes.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            self.written.fail((*path, "zip"), f"its lists need the same length, but {counts} values.")
        return _Grid(path, base, axes, zipped_axes)

    def _axes(self, path: Place, values: JsonValue) -> dict[str, list[JsonValue]]:
        axes: dict[str, list[JsonValue]] = {}
        for name, choices in self.written.mapping(path, {} if values is None else values).items():
            if not isinstance(choices, list) or not choices:
                self.written.fail((*path, name), f"{short(choices)} is not valid: a list with values is needed.")
            for number, value in enumerate(choices):
                self._check_setting((*path, name, number), name, value)
            axes[name] = choices
        return axes

    def _run(self, path: Place, values: Section) -> tuple[Settings, str]:
        corpus = values.pop(THE_CORPUS, next(iter(self.corpora)) if len(self.corpora) == 1 else None)
        if not isinstance(corpus, str):
            message = f"no corpus is chosen for the runs. Choose from {', '.join(self.corpora)}."
            self.written.fail(path or ("base",), message)
        try:
            return settings_from(values), corpus
        except ConfigError as error:
            shown = ", ".join(f"{name} {value}" for name, value in values.items())
            raise ConfigError(f"{self.written.at(path)}: the run with {shown or 'no settings'}: {error}") from error

    def _settings(self, path: Place, values: JsonValue) -> Section:
        settings = self.written.mapping(path, values)
        for name, value in settings.items():
            self._check_setting((*path, name), name, value)
        return settings

    def _check_setting(self, path: Place, name: str, value: JsonValue) -> None:
        """Refuse a value that a setting of a run cannot have; the same value is checked once."""
        if name == THE_CORPUS:
            if not isinstance(value, str) or value not in self.corpora:
                hint = did_you_mean(str(value), self.corpora, otherwise=f"Choose from {', '.join(self.corpora)}.")
                self.written.fail(path, f"{short(value)} is not a corpus of this recipe. {hint}")
            return
        key = (name, repr(value))
        if key not in self._checked:
            try:
                settings_from({"width": 2, "depth": 1, name: value})
            except ConfigError as error:
                self.written.fail(path, str(error).removeprefix(f"{name}: ").removeprefix(f"{name} "))
            self._checked.add(key)

    def _arms(self) -> list[RecipeArm]:
        arms: list[RecipeArm] = []
        for number, value in enumerate(self.sections.arms or []):
            arm = RecipeArm(self._arm(("arms", number), value))
            if arm in arms:
                self.written.fail(("arms", number), f"{arm.name} is there twice. Leave one out.")
            arms.append(arm)
        return arms

    def _arm(self, path: Place, value: JsonValue) -> Section:
        """The settings of an arm: `none`, a dose, a list of doses, or settings, `intervene` among them."""
        if value is None or value == CONTROL:
            return {}
        if not isinstance(value, dict):
            return self._doses(path, value)
        for name in value.keys() & set(NOT_OF_ARMS):
            self.written.fail((*path, name), "an arm and its control share it. Put it under base or grid.")
        settings = self._settings(path, value)
        return self._doses((*path, "intervene"), settings.pop("intervene", [])) | settings

    def _doses(self, path: Place, doses: JsonValue) -> Section:
        """`intervene` with the doses in their one form; nothing where there are none."""
        if isinstance(doses, str) and ":" not in doses:
            for settings, known in ((f"head: {doses}, tied: false", HEADS), (f"optimizer: {doses}", OPTIMIZERS)):
                if doses in known:
                    self.written.fail(path, f"{doses} is not a dose. Write {{{settings}}}.")
            near = did_you_mean(doses, [CONTROL, *INTERVENTIONS, *HEADS, *OPTIMIZERS])
            needed = "An arm is none, a dose as in within:+0.1, a list of doses, or settings."
            self.written.fail(path, f"{short(doses)} is not an arm. {near} {needed}".replace("  ", " "))
        try:
            chosen = settings_from({"width": 2, "depth": 1, "intervene": doses}).intervene
        except ConfigError as error:
            self.written.fail(path, str(error).removeprefix("intervene: "))
        return {"intervene": list(chosen)} if chosen else {}

    def _primary(self) -> Primary | None:
        if not {"primary", "arms"} & self.document.keys():
            return None
        given, fields = self.document.get("primary", {}), tuple(Primary.model_fields)
        self.written.mapping(
            ("primary",), given, fields, "a choice of primary"
        )  # a record ignores what it does not know
        primary = self.sections.primary or Primary()
        for number, metric in enumerate(primary.metrics):
            place = ("primary", "metrics", number)
            if metric not in METRICS:
                self.written.fail(place, f"{short(metric)} is not a metric. {did_you_mean(metric, METRICS)}".rstrip())
            if metric in primary.metrics[:number]:
                self.written.fail(place, f"{metric} is there twice.")
        return primary
