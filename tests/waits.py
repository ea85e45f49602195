"""Waits of the host for the simulated device: of each batch of a measurement, and of each step of a training."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from collapselab import measure
from collapselab.corpus.blocks import Corpus
from collapselab.measurement.batch import Batch
from collapselab.measurement.collector import Collectors
from collapselab.measurement.collectors.moments import HalfSample
from collapselab.measurement.measure_model import ForwardPass
from collapselab.models.build import build_config, build_model
from collapselab.models.scores import LogitSpace
from collapselab.models.taps import OutputLayer, features
from collapselab.records.measurement import Result
from collapselab.training.heads import make_head
from collapselab.training.objective import Objective
from collapselab.training.settings import settings_from
from simulated_device import SimulatedDevice, simulated_device


def gpt2(corpus: Corpus, depth: int, width: int = 16) -> GPT2LMHeadModel:
    """Return a random GPT-2 for the corpus."""
    torch.manual_seed(0)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(vocab_size=corpus.vocabulary, n_embd=width, n_layer=depth, n_head=2, n_positions=32, **ends)
    return GPT2LMHeadModel(config).eval()


Waits = dict[str, list[Counter[str]]]
"""What the host waited for by source line, for each batch of each split, the model's own forward pass included."""


def measured_with_waits(corpus: Corpus, depth: int, **options: Any) -> tuple[Result, Waits]:
    """Measure a GPT-2 on the simulated device.

    In one batch the catalogue is computed for half of the sample; those waits are not counted.
    """
    given = {"layers": "all", "batch": 16, "dtype": "float32", "quiet": True, **options}
    with simulated_device() as device, _counted(device) as found:
        result = measure(gpt2(corpus, depth).to("sim"), corpus, **given)  # type: ignore[arg-type]
    assert isinstance(result, Result)
    return result, found


@contextmanager
def _counted(device: SimulatedDevice) -> Iterator[Waits]:
    found: Waits = {"train": [], "validation": []}
    left_out: Counter[str] = Counter()
    run_batch, update = ForwardPass.run_batch, HalfSample.update

    def counted_batch(self: ForwardPass, batch: Batch, collected: Collectors) -> None:
        before = device.waits + left_out
        run_batch(self, batch, collected)
        found[self.name].append(device.waits + left_out - before)

    def uncounted_update(self: HalfSample, *args: Any) -> None:
        before = device.waits.copy()
        update(self, *args)
        device.waits, before = before, device.waits - before

    ForwardPass.run_batch, HalfSample.update = counted_batch, uncounted_update  # type: ignore[method-assign]
    try:
        yield found
    finally:
        ForwardPass.run_batch, HalfSample.update = run_batch, update  # type: ignore[method-assign]


Step = tuple[float, nn.Module]


def steps_of(place: str, *intervene: str, family: str = "gpt-neo", head: str = "learned") -> Iterator[Step]:
    """Train a tiny model, and yield the loss and the model after each step. Interventions act from the 21st on."""
    torch.manual_seed(0)
    tied = head == "learned"
    config = build_config(family, width=16, depth=1, vocabulary=17, positions=16, tied=tied, head_size=8)
    model: nn.Module = build_model(config, seed=0)
    settings = settings_from({"width": 16, "depth": 1, "intervene": list(intervene), "head": head, "tied": tied})
    updates = make_head(model, settings, counts=torch.arange(17))
    model.to(place)
    layer: Any = model.get_output_embeddings()  # type: ignore[operator]
    whole = OutputLayer(layer.weight, layer.bias)  # `output_layer` takes a simulated tensor for packed weights
    objective = Objective(whole, settings, steps=100, space=LogitSpace())
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)
    for number in range(100):
        ids = torch.randint(8, (3, 16), generator=torch.Generator().manual_seed(number))
        objective.begin_step(number)
        optimizer.zero_grad()
        entering, labels = features(model, ids.to(place))[:, :-1], ids[:, 1:]
        if updates is not None:
            updates.observe(entering.detach().reshape(-1, 16), labels.reshape(-1))
        loss = objective(entering, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        (read,) = objective.end_step(loss)[1]
        optimizer.step()
        if updates is not None:
            updates.after_step(objective.total)
        yield read, model


def waits_of_step(*intervene: str) -> Counter[str]:
    """Return what the host waited for in a step that interventions act in, but for the model's own forward pass."""
    with simulated_device() as device:
        return waits_of_last(device, steps_of("sim", *intervene), 22)[1]


def waits_of_last(device: SimulatedDevice, steps: Iterator[Step], number: int) -> tuple[list[Step], Counter[str]]:
    """Take so many steps; return them, and what the host waited for in the last, but for the forward pass."""
    taken = list(islice(steps, number - 1))
    before = device.waits.copy()
    taken.append(next(steps))
    last = device.waits - before
    return taken, Counter({line: count for line, count in last.items() if not line.startswith("models/taps")})
