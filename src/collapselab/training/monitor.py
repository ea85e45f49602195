"""Measure a model's collapse while it is trained, in any loop, and raise alerts: what all callbacks share.

monitor = CollapseMonitor(data=texts, tokenizer=tokenizer, every=500, alerts={"agreement": "<0.1 after 1000"})
"""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from collapselab.core.catalogue import METRICS, Need
from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError, did_you_mean
from collapselab.measurement.measure import measure
from collapselab.measurement.model_corpus import Data, Text, model_corpus, opened_texts
from collapselab.measurement.result import PREFIX, logged
from collapselab.messages import logger
from collapselab.models.taps import bare_model, sharded_by
from collapselab.records.measurement import Result
from collapselab.records.options import Options, Running
from collapselab.records.profile import HEADLINE_METRICS

log = logger(__name__)

WATCHED_TOKENS = 50_000
"""Tokens of each split that are measured every time."""

SPECTRA = {name for name, metric in METRICS.items() if Need.SPECTRUM in metric.needs}
SCORES = {"val_loss", "val_accuracy"}

_CONDITION = re.compile(
    r"\s*(?:(?P<change>drop|rise)\s*>|(?P<side>[<>]))\s*(?P<limit>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)"
    r"(?P<percent>%?)(?:\s+after\s+(?P<after>\d+))?\s*"
)


class Alert(NamedTuple):
    """A metric that met its condition, with the step and the value at which it did."""

    metric: str
    condition: str
    step: int
    value: float

    def __str__(self) -> str:
        return f"step {self.step:,}: {self.metric} is {self.value:.4g}, which meets the alert {self.condition!r}."


class _Condition:
    """A condition on one metric: `<0.1`, `>2`, `drop>50%` or `rise>0.3`, each perhaps with ` after STEP`."""

    def __init__(self, metric: str, text: str) -> None:
        base = metric.rpartition("/")[2]
        if base not in METRICS and base not in SCORES:
            hint = did_you_mean(base, [*METRICS, *SCORES])
            raise ConfigError(f"alerts: {metric} is not a metric. {hint}".rstrip())
        matched = _CONDITION.fullmatch(str(text))
        if matched is None or (matched["percent"] and not matched["change"]):
            raise ConfigError(
                f"alerts: {text!r} is not a condition on {metric}. Write it as '<0.1', '>2', 'drop>50%' or 'rise>0.3', "
                "and ' after 1000' for a first step."
            )
        self.metric, self.text, self.after = metric, text, int(matched["after"] or 0)
        self.falls, self.changes = matched["change"] == "drop" or matched["side"] == "<", matched["change"] is not None
        self.limit, self.is_share = float(matched["limit"]) / (100 if matched["percent"] else 1), matched["percent"]
        self.best: float | None = None
        """The value that a drop or a rise is counted from: the largest or the smallest so far."""
        self.is_met = False

    def begins(self, value: float, step: int) -> bool:
        """Whether the condition is met at this step and was not at the last measurement."""
        if step < self.after:
            return False
        before = self.is_met
        if self.changes:
            self.best = value if self.best is None else (max if self.falls else min)(self.best, value)
            self.is_met = abs(value - self.best) > self.limit * (abs(self.best) if self.is_share else 1)
        else:
            self.is_met = value < self.limit if self.falls else value > self.limit
        return self.is_met and not before


class CollapseMonitor:
    """Measure collapse on a fixed sample while a model is trained, in any loop; the training stays bit-identical.

    >>> from collapselab import CollapseMonitor
    >>> monitor = CollapseMonitor("corpora/stories", every=100, alerts={"participation": "drop>50%"}, on_alert="stop")
    >>> monitor.results, monitor.stopped
    ({}, False)

    Call `monitor.step(model, step)` before training and after every step. It measures the first time, then every
    `every` steps, and with `last=True`, and returns what is to be logged.
    """

    def __init__(
        self,
        corpus: str | Path | Corpus | None = None,
        every: int = 500,
        *,
        data: Text | None = None,
        tokenizer: object = None,
        metrics: Literal["headlines", "all"] = "headlines",
        alerts: Mapping[str, str] | None = None,
        on_alert: Literal["warn", "stop"] | Callable[[Alert], object] = "warn",
        max_share: float = 0.05,
        **options: Any,
    ) -> None:
        """`data` are texts (or what `measure` takes) in place of a corpus, for the model's tokenizer or `tokenizer`.

        `metrics="headlines"` logs seven metrics of the last layer and the spectrum of every layer; `"all"` logs the
        whole catalogue. `alerts` are conditions by metric, as in {"agreement": "<0.1 after 1000",
        "layer1/participation": "drop>50%"}; `on_alert` warns, stops the training, or is called with the `Alert`.
        Between the first and the last measurement, one is left out as long as measuring would take more than
        `max_share` of the training time. `options` are those of `Options`.
        """
        if every < 1:
            raise ConfigError(f"every must be ≥ 1, got {every}.")
        if not max_share > 0:
            raise ConfigError(f"max_share must be > 0, got {max_share}.")
        if on_alert not in ("warn", "stop") and not callable(on_alert):
            raise ConfigError(f"on_alert must be 'warn', 'stop' or a function, got {on_alert!r}.")
        self.conditions = [_Condition(metric, text) for metric, text in (alerts or {}).items()]
        self.every, self.metrics, self.on_alert, self.max_share = every, metrics, on_alert, max_share
        self.options = Options(**{"tokens": WATCHED_TOKENS, "null": False, "layers": "all", **options})
        self.text = opened_texts(corpus, data, self.options, Running(quiet=True), tokenizer=tokenizer)[0]
        self.results: dict[int, Result] = {}
        """What was measured, by step."""
        self.alerts: list[Alert] = []
        """Alerts so far. A condition raises one when it becomes true."""
        self.stopped = False
        """Whether an alert has asked for the end of the training."""
        self.seconds = 0.0
        """What all measurements cost so far."""
        self._began, self._cost = time.perf_counter(), 0.0

    def step(self, model: nn.Module, step: int, *, last: bool = False) -> dict[str, float]:
        """Measure the model after this step if it is time, and return the values to log; otherwise nothing."""
        start = time.perf_counter()
        if not self.results:
            check_not_sharded(model, what=type(self).__name__)
            self._began = start
        trained = start - self._began - self.seconds
        # The next measurement and the last one have to fit into the share.
        is_due = step % self.every == 0 and self.seconds + 2 * self._cost <= self.max_share * trained
        if step in self.results or not (is_due or last or not self.results):
            return {}
        if isinstance(self.text, Data):
            self.text = model_corpus(bare_model(model), self.text, Running(quiet=True))
        devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
        built = time.perf_counter()
        with torch.random.fork_rng(devices=devices):
            result = measure(model, self.text, quiet=True, options=self.options)
        assert isinstance(result, Result)
        values = logged(result)
        self._raise_alerts(result, values, step)
        self.results[step] = result
        self._cost, self.seconds = time.perf_counter() - built, self.seconds + time.perf_counter() - start
        cost = {"seconds": self.seconds} | ({"share": self.seconds / trained} if trained > 0 else {})
        shown = {name: value for name, value in values.items() if self.metrics == "all" or self._is_shown(name)}
        return shown | {f"{PREFIX}/{name}": value for name, value in cost.items()}

    def _is_shown(self, name: str) -> bool:
        name = name.removeprefix(f"{PREFIX}/").removeprefix("null/")
        asked = {*HEADLINE_METRICS, *SCORES, *(condition.metric for condition in self.conditions)}
        return name in asked or name.rpartition("/")[2] in SPECTRA

    def _raise_alerts(self, result: Result, values: Mapping[str, float], step: int) -> None:
        layers = list(dict.fromkeys(f"layer{row.layer}" for row in result.rows if row.layer != "last"))
        for condition in self.conditions:
            if (layer := condition.metric.rpartition("/")[0]) and layer not in layers:
                raise ConfigError(f"alerts: {condition.metric}: there is no {layer}. There are {', '.join(layers)}.")
            value = values.get(f"{PREFIX}/{condition.metric}")
            if value is None or not condition.begins(value, step):
                continue
            self.alerts.append(alert := Alert(condition.metric, condition.text, step, value))
            if callable(self.on_alert):
                self.on_alert(alert)
                continue
            self.stopped = self.stopped or self.on_alert == "stop"
            log.warning("%s%s", alert, " The training is stopped." if self.stopped else "")

    def share_stop(self) -> bool:
        """Whether the first process, which measures, has asked for the end; all processes call it at the same steps."""
        if self.conditions and dist.is_available() and dist.is_initialized():
            flag = [self.stopped]
            dist.broadcast_object_list(flag)
            self.stopped = flag[0]
        return self.stopped


def check_not_sharded(model: nn.Module, *, what: str) -> None:
    """ConfigError that names how the weights are spread over processes; nothing where each process has all of them.

    The first process would never get the parts of the others, which do not take part in a measurement.
    """
    if (kind := sharded_by(model)) is not None:
        raise ConfigError(
            f"{what}: the model is trained with {kind}, which spreads its weights over processes; measuring needs "
            "all of them in one. Save checkpoints and measure these, or train with DistributedDataParallel or ZeRO-2."
        )
