"""YAML → runs: a recipe, strictly checked. An error names the line, and the nearest word that is known.

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
from pathlib import Path

from pydantic import JsonValue

from collapselab.core.catalogue import METRICS
from collapselab.errors import ConfigError, did_you_mean
from collapselab.records.options import Options
from collapselab.records.suite import Primary
from collapselab.suite.sections import (
    SECTIONS,
    CorpusSpec,
    Place,
    Resources,
    Section,
    Written,
    read_yaml,
    short,
)
from collapselab.training.settings import Settings, settings_from

RECIPES = Path(__file__).with_name("recipes")
"""The recipes that come with the package."""

THE_CORPUS = "corpus"
"""The name of a suite's corpus where it has one alone; with several, the setting that chooses among them."""

CONTROL = "none"
NOT_OF_ARMS = ("seed", "data_seed", "corpus", "checkpoints", "precision")
"""What an arm and its control share."""


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


def shipped_recipes() -> dict[str, str]:
    """Return the recipes that come with the package: name → text.

    >>> from collapselab import shipped_recipes
    >>> "question:" in shipped_recipes()["demo"]
    True
    """
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(RECIPES.glob("*.yaml"))}


def is_shipped(name: str | Path) -> bool:
    """Whether text names a recipe that comes with the package; a Path is never one."""
    return isinstance(name, str) and name in shipped_recipes()


def load_suite(name: str | Path, *, scale: str = "full") -> Suite:
    """Return the suite of a YAML file, or of a recipe that is shipped.

    >>> from collapselab import load_suite
    >>> suite = load_suite("demo")
    >>> suite.scale, suite.runs[0][0].width
    ('full', 16)
    """
    path = RECIPES / f"{name}.yaml" if is_shipped(name) else Path(name)
    if not path.is_file():
        shipped = list(shipped_recipes())
        hint = f"{did_you_mean(path.stem, shipped)} Name a shipped recipe ({', '.join(shipped)}) or a YAML file."
        raise ConfigError(f"{name}: not a recipe, and no such file. {hint.lstrip()}")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not text ({error}).") from error
    return parse_suite(text, name=path.stem, where=str(name), scale=scale, beside=path.resolve().parent)


def parse_suite(
    text: str, *, name: str, where: str | None = None, scale: str = "full", beside: Path | None = None
) -> Suite:
    """Return the suite that a recipe's text describes; relative paths are looked for in the folder `beside`."""
    document, lines = read_yaml(text, where or name)
    if scale not in ("full", "small"):
        raise ConfigError(f"scale must be 'full' or 'small', got {scale!r}")
    written = Written(where or name, lines)
    return _Recipe(written, _at_scale(written, document, scale), beside).suite(name, scale)


def suite_from(document: Section, *, name: str, scale: str, where: str | None = None) -> Suite:
    """Return the suite of a recipe that is plain data already, as suite.json keeps it."""
    return _Recipe(Written(where or name, {}), document, None).suite(name, scale)


def _at_scale(written: Written, document: JsonValue, scale: str) -> Section:
    """The recipe without the section `small`, whose values replace the others at small scale."""
    sections = written.mapping((), document, SECTIONS, "a section of a recipe")
    small = sections.pop("small", None)
    if small is None and scale == "small":
        raise ConfigError(f"{written.name}: has no section `small`; it runs at full scale only.")
    changes = written.mapping(("small",), small or {}, SECTIONS[:-1], "a section of a recipe")
    if scale == "full":
        return sections
    for section, values in changes.items():
        old = sections.get(section)
        if isinstance(old, dict) and isinstance(values, dict) and section not in ("zip", "corpora"):
            values = old | values
        sections[section] = values
    written.lines |= {path[1:]: line for path, line in written.lines.items() if path[:1] == ("small",)}
    return sections


class _Recipe:
    """Turns the document of a recipe into a suite."""

    def __init__(self, written: Written, document: Section, beside: Path | None) -> None:
        self.written, self.document = written, document
        self.sections = written.sections(document)
        self.corpora = {name: spec.resolved(beside) for name, spec in self._corpora().items()}
        self._checked: set[tuple[str, str]] = set()

    def suite(self, name: str, scale: str) -> Suite:
        sections, arms, primary = self.sections, self._arms(), self._primary()
        document = {section: values for section, values in self.document.items() if section != "corpus"}
        document["corpora"] = {name: one.model_dump(mode="json") for name, one in self.corpora.items()}
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
            runs=list(self._runs(arms or [RecipeArm({})])),
            measure=options,
            resources=sections.resources,
            primary=primary,
            arms=tuple(arms),
        )

    def _corpora(self) -> dict[str, CorpusSpec]:
        single, several = self.sections.corpus, self.sections.corpora
        if (single is None) == (not several):
            self.written.fail(("corpus",), "a recipe has either one corpus or several corpora.")
        given = several or {THE_CORPUS: single or ""}
        corpora = {name: CorpusSpec(folder=spec) if isinstance(spec, str) else spec for name, spec in given.items()}
        for name, spec in corpora.items():
            if (spec.folder is None) == (not spec.sources):
                self.written.fail(
                    ("corpora", name) if several else ("corpus",), "a corpus is a folder, or has a source."
                )
        return corpora

    def _runs(self, arms: list[RecipeArm]) -> Iterator[tuple[Settings, str]]:
        base = self._settings(("base",), self.sections.base)
        checkpoints = self.sections.checkpoints
        if checkpoints is not None:
            epochs = checkpoints if isinstance(checkpoints, list) else [checkpoints]
            base["checkpoints"] = ",".join(one if isinstance(one, str) else f"{one:g}" for one in epochs)
        runs = self.sections.runs or []
        grids: list[tuple[Place, Section, Section]] = []
        if {"grid", "zip"} & self.document.keys() or not runs:
            grids.append(((), self.document, base))
        for number, run in enumerate(runs):
            own = {key: value for key, value in run.items() if key not in ("grid", "zip")}
            grids.append((("runs", number), run, base | self._settings(("runs", number), own)))
        points = [(path, own, point) for path, run, own in grids for point in self._points(path, run)]
        for number, arm in enumerate(arms):
            for name in arm.settings.keys() & {name for _, _, point in points for name in point}:
                self.written.fail(("arms", number), f"{arm.name} sets {name}, which the grid varies. Leave one out.")
            if "intervene" in arm.settings and any("intervene" in own for _, _, own in grids):
                self.written.fail(("arms", number), f"{arm.name} has doses, and so have its runs. Leave out theirs.")
        for (path, own, point), arm in itertools.product(points, arms):
            yield self._run(path, own | point | arm.settings)

    def _points(self, path: Place, section: Section) -> Iterator[Section]:
        """All combinations of the values in `grid`, each with every line of `zip`."""
        axes, zipped = (self._axes((*path, name), section.get(name)) for name in ("grid", "zip"))
        for name in axes.keys() & zipped.keys():
            self.written.fail((*path, "zip", name), "is in the grid too. Leave one out.")
        if len({len(values) for values in zipped.values()}) > 1:
            counts = ", ".join(f"{name} has {len(values)}" for name, values in zipped.items())
            self.written.fail((*path, "zip"), f"its lists need the same length, but {counts} values.")
        lines = zip(*zipped.values(), strict=True) if zipped else [()]
        for line, point in itertools.product(lines, itertools.product(*axes.values())):
            yield dict(zip(axes, point, strict=True)) | dict(zip(zipped, line, strict=True))

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
        if name == THE_CORPUS and value not in list(self.corpora):
            self.written.fail(path, f"{short(value)} is not a corpus of this recipe: {', '.join(self.corpora)}.")
        key = (name, repr(value))
        if name != THE_CORPUS and key not in self._checked:
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
        try:
            chosen = settings_from({"width": 2, "depth": 1, "intervene": doses}).intervene
        except ConfigError as error:
            needed = "An arm is none, a dose as in within:+0.1, a list of doses, or settings."
            self.written.fail(path, f"{str(error).removeprefix('intervene: ')} {needed}")
        return {"intervene": list(chosen)} if chosen else {}

    def _primary(self) -> Primary | None:
        if not {"primary", "arms"} & self.document.keys():
            return None
        known = tuple(Primary.model_fields)  # a record ignores what it does not know
        self.written.mapping(("primary",), self.document.get("primary", {}), known, "a choice of primary")
        primary = self.sections.primary or Primary()
        for number, metric in enumerate(primary.metrics):
            if metric not in METRICS:
                hint = f"{short(metric)} is not a metric. {did_you_mean(metric, METRICS)}"
                self.written.fail(("primary", "metrics", number), hint.rstrip())
        return primary
