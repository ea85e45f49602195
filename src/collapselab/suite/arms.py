"""The arms of a recipe: what runs of one seed differ in. Every arm is trained with every seed of the grid.

arms:
  - none                                  # the control
  - within:+0.1                           # an intervention at a dose
  - [within:+0.1, uniform:-0.1]           # two at once
  - {head: frozen-code, tied: false}      # settings of `collapselab train`, `intervene` among them
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from pydantic import JsonValue

from collapselab.errors import ConfigError, did_you_mean
from collapselab.suite.recipe_text import Place, Written, short
from collapselab.training.heads import HEADS
from collapselab.training.interventions import INTERVENTIONS
from collapselab.training.interventions.dose import parse_doses
from collapselab.training.optimizers import OPTIMIZERS

CONTROL = "none"
NOT_OF_ARMS = ("seed", "data_seed", "corpus", "checkpoints", "precision")
"""What an arm and its control share."""

Section = dict[str, JsonValue]
Check = Callable[[Place, str, JsonValue], None]
"""Fails where a setting cannot have a value: its place, its name, the value."""


@final
@dataclass(frozen=True)
class RecipeArm:
    """What distinguishes some runs of a suite from the others: the settings that they have in place of the base's."""

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


def parse_arms(written: Written, values: JsonValue, check: Check) -> tuple[RecipeArm, ...]:
    """The arms of a recipe's section; an error names the line of the arm."""
    if not isinstance(values, list) or not values:
        written.fail(("arms",), f"{short(values)} is not valid: a list is needed, as in [none, within:+0.1].")
    arms: list[RecipeArm] = []
    for number, value in enumerate(values):
        arm = RecipeArm(_settings(written, ("arms", number), value, check))
        if arm.settings in (other.settings for other in arms):
            written.fail(("arms", number), f"{arm.name} is there twice. Leave one out.")
        arms.append(arm)
    return tuple(arms)


def _settings(written: Written, path: Place, value: JsonValue, check: Check) -> Section:
    if value is None or value == CONTROL:
        return {}
    if isinstance(value, str):
        return _doses(written, path, [value])
    if isinstance(value, list):
        return _doses(written, path, value)
    settings = written.mapping(path, value)
    for name, chosen in settings.items():
        if name in NOT_OF_ARMS:
            written.fail((*path, name), "an arm and its control share it. Put it under base or grid.")
        check((*path, name), name, chosen)
    doses = settings.pop("intervene", [])
    listed: list[JsonValue] = doses if isinstance(doses, list) else [doses]
    return _doses(written, (*path, "intervene"), listed) | settings


def _doses(written: Written, path: Place, texts: list[JsonValue]) -> Section:
    """`intervene` with the doses in their one form; nothing where there are none."""
    known = []
    for number, text in enumerate(texts):
        place = (*path, number) if len(texts) > 1 else path
        if not isinstance(text, str):
            written.fail(place, f"{short(text)} is not valid: a dose as in within:+0.1 is needed.")
        try:
            known += [str(dose) for dose in parse_doses([text])]
        except ConfigError as error:
            written.fail(place, _hinted(text, str(error).removeprefix("intervene: ")))
    try:
        doses: list[JsonValue] = [str(dose) for dose in parse_doses(known)]
    except ConfigError as error:
        written.fail(path, str(error).removeprefix("intervene: "))
    return {"intervene": doses} if doses else {}


def _hinted(text: str, message: str) -> str:
    """What is wrong with a dose; where it is a word alone, what was probably meant."""
    if ":" in text:
        return message
    if text in HEADS:
        return f"{short(text)} is a head. Write {{head: {text}, tied: false}}."
    if text in OPTIMIZERS:
        return f"{short(text)} is an optimiser. Write {{optimizer: {text}}}."
    near = did_you_mean(text.lower(), [CONTROL, *INTERVENTIONS, *HEADS, *OPTIMIZERS])
    needed = "An arm is none, a dose as in within:+0.1, a list of doses, or settings."
    return f"{short(text)} is not an arm. {near} {needed}".replace("  ", " ")
