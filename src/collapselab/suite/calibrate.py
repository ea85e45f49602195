"""How long a suite takes on this machine, from timing a few steps of a small and of a large model of it.

A step takes a fixed time and one that grows with its operations. Two points give both; everything else is arithmetic.
The steps are those of `train`: same model, same loss, same optimiser, on tokens drawn at random.
"""

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import final

from collapselab.records.options import Options
from collapselab.suite.plan import Entry

STEPS = 5
STEP_TOKENS = 4096
"""Most tokens of a timed step: enough to be typical, few enough to be fast."""

LARGE_STEP_SECONDS = 3.0
"""Most seconds for the timed step of the large model, as predicted from the small one."""

CHECKPOINT_SECONDS = 1.5
"""Loading, counting and writing at each measured checkpoint."""


@final
@dataclass(frozen=True)
class Pace:
    """The speed of this machine: a fixed time for each step, and floating-point operations per second."""

    step_seconds: float
    flops_per_second: float

    def seconds(self, entry: Entry, options: Options) -> float:
        """About how long it takes to train a run and to measure every checkpoint."""
        training = entry.planned.steps * self.step_seconds + entry.flops / self.flops_per_second
        measuring = CHECKPOINT_SECONDS + entry.measure_flops(options) / self.flops_per_second
        return training + len(entry.checkpoints) * measuring


def pace(entries: list[Entry], *, device: str = "auto") -> Pace:
    """Time the smallest model of a plan, and the largest that does not take long."""
    ordered = sorted(entries, key=_timed_flops)
    small = ordered[0]
    small_flops, small_seconds = _timed_flops(small), _step_seconds(small, device)
    within = [entry for entry in ordered if _timed_flops(entry) / small_flops * small_seconds <= LARGE_STEP_SECONDS]
    large = within[-1] if within else small
    if _timed_flops(large) < 1.5 * small_flops:
        return Pace(0.0, small_flops / small_seconds)
    more_flops, more_seconds = _timed_flops(large) - small_flops, _step_seconds(large, device) - small_seconds
    if more_seconds <= 0:
        return Pace(small_seconds, float("inf"))
    return Pace(max(0.0, small_seconds - small_flops * more_seconds / more_flops), more_flops / more_seconds)


def _sequences(entry: Entry) -> int:
    return max(1, min(entry.planned.batch, STEP_TOKENS // entry.planned.block))


def _timed_flops(entry: Entry) -> float:
    return entry.step_flops * _sequences(entry) / entry.planned.batch


def _step_seconds(entry: Entry, device: str) -> float:
    """The median time of a step, the first left out: it warms up."""
    import numpy as np
    from transformers import TrainerCallback

    from collapselab.corpus.blocks import Split
    from collapselab.models.build import build_model
    from collapselab.models.load import find_device
    from collapselab.training.settings import Plan, model_config
    from collapselab.training.trainer import LanguageTrainer, training_arguments

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_step_end(self, *_: object, **__: object) -> None:
            self.ends.append(time.perf_counter())

    settings, corpus, block = entry.settings, entry.corpus, entry.planned.block
    plan = Plan(block, 64, _sequences(entry), STEPS, 0, {})
    config = model_config(settings, vocabulary=corpus.vocabulary, block=block)
    where, clock = find_device(device), Clock()
    with tempfile.TemporaryDirectory() as folder:
        ids = np.random.default_rng(0).integers(0, corpus.vocabulary, (plan.blocks, block), dtype=np.uint32)
        ids.tofile(Path(folder) / "train.bin")
        counts = np.zeros((2, corpus.vocabulary), dtype=np.int64)
        split = Split(Path(folder) / "train.bin", blocks=plan.blocks, block=block, id_type="uint32", counts=counts)
        args = training_arguments(settings, plan, folder=folder, device=where, bf16=False, parts=1, report_to="none")
        trainer = LanguageTrainer(build_model(config, seed=0), split, settings, plan, args)
        trainer.add_callback(clock)
        trainer.train()
    return statistics.median(after - before for before, after in zip(clock.ends, clock.ends[1:], strict=False))
