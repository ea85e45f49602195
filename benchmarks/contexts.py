"""What contexts of 2 and 3 tokens add to measuring the last layer of 2 million tokens, in time and memory.

Finding them is timed on the whole sample and the metrics once; adding features, on some batches, with and without
contexts in turns. The text is a chain of 1,000 types with tokens as frequent as words.
"""

import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from benchmarks.measure import BATCH, BLOCK, VOCABULARY, model_of
from benchmarks.timing import Line, at_most, shown
from collapselab.core.contexts import ContextGeometry, context_metrics
from collapselab.corpus.blocks import Split
from collapselab.corpus.markov import Chain, Settings
from collapselab.measurement.batch import Batch
from collapselab.measurement.collector import Collectors
from collapselab.measurement.collectors import COLLECTORS
from collapselab.measurement.collectors.contexts import ContextMoments
from collapselab.measurement.collectors.moments import table_bytes
from collapselab.measurement.measure_model import ForwardPass
from collapselab.measurement.model import MeasuredModel
from collapselab.measurement.plan import MeasurePlan, MeasureRequest, SplitPlan
from collapselab.measurement.sample import ByLayer, ClassNumbers, Contexts, Sample, find_contexts
from collapselab.records.options import Options, Running


def contexts(quick: bool) -> list[Line]:
    """GPT-Neo 4 × 256 with a vocabulary of 50,257."""
    tokens, batches = (200_000, 4) if quick else (2_000_000, 12)
    model, text = MeasuredModel(model_of(VOCABULARY), name="gpt-neo"), _Chain(tokens)
    sample = Sample(text, name="", length=BLOCK, blocks=len(text), seed=0)  # type: ignore[arg-type]
    options, samples = Options(contexts="2,3"), ByLayer(sample, sample)
    start = time.process_time()
    found = find_contexts(samples, options, model.classes)
    finding = time.process_time() - start
    plain, more, collected = _times(model, samples, options, found, batches)
    whole = len(sample) / BATCH
    start = time.process_time()
    for n, some in found.items():
        _metrics(some, model.head.weight.shape[1])
        assert f"last {n}" in collected.tables
    catalogue = time.process_time() - start
    added = finding + whole * (more - plain) + catalogue
    parts = f"finding {shown(finding)}, adding {shown(whole * (more - plain))}, metrics {shown(catalogue)}"
    times = {"ours": shown(added), "limit": f"measuring {shown(whole * plain)}; {parts}"}
    line = at_most(
        "contexts 2 and 3: on top of measuring the last layer", 100 * added / (whole * plain), 15, "%", **times
    )
    held = sum(_bytes(moments) for moments in collected.tables.values())
    foretold = sum(table_bytes(some.rows, model.head.weight.shape[1]) for some in found.values())
    sizes = {"ours": f"{held / 1e6:,.1f} MB", "limit": f"formula {foretold / 1e6:,.1f} MB"}
    return [
        line,
        at_most("memory of contexts 2 and 3: off the formula", 100 * abs(held / foretold - 1), 1, "%", **sizes),
    ]


def _times(
    model: MeasuredModel, samples: ByLayer[Sample], options: Options, found: dict[int, Contexts], batches: int
) -> tuple[float, float, ContextMoments]:
    """Median processor seconds of a batch without contexts and with them, and what the latter collected."""
    nowhere: Any = None  # a plan that is made by hand needs no corpus
    counts = samples.last.counts(model.classes)
    split = SplitPlan(samples, [], counts, ClassNumbers(ByLayer(*[torch.ones(model.classes, dtype=torch.bool)] * 2)))
    passes: list[ForwardPass] = []
    seconds: list[list[float]] = [[], []]
    for some, asked in (({}, replace(options, contexts=None)), (found, options)):
        request = MeasureRequest(nowhere, asked, Running(quiet=True))
        plan = MeasurePlan(request, model, {"train": split}, ByLayer(counts, counts), {}, BATCH, some)
        passes.append(ForwardPass(plan, "train", Collectors.wanted(COLLECTORS, plan, "train")))
    with torch.no_grad():
        for number in range(batches):
            for which in (0, 1):
                start = time.process_time()
                one = passes[which]
                one.run_batch(Batch(one.plan, "train", range(number * BATCH, (number + 1) * BATCH)), one.collectors)
                seconds[which].append(time.process_time() - start)
    return statistics.median(seconds[0][1:]), statistics.median(seconds[1][1:]), passes[1].collectors[ContextMoments]


def _metrics(found: Contexts, dim: int) -> None:
    """The catalogue on features drawn at random: its time does not depend on them."""
    from collapselab.core.moments import ClassMoments

    table, generator = found.table, torch.Generator().manual_seed(0)
    counts = torch.cat([table.count, torch.ones(1, dtype=torch.int64)])
    sums = torch.randn(found.rows, dim, dtype=torch.float64, generator=generator) * counts[:, None]
    moments = ClassMoments(counts, sums, counts.double())
    context_metrics(ContextGeometry(moments, table))


def _bytes(moments: Any) -> float:
    tally = moments._state
    held = (tally.counts, tally.sums, tally.squares, tally.direct, tally.reference, tally.directions)
    return float(sum(tensor.numel() * tensor.element_size() for tensor in held))


@final
class _Chain:
    """A split that is a chain."""

    def __init__(self, tokens: int) -> None:
        blocks = tokens // BLOCK
        chain = Chain.drawn(Settings(order=1, types=1000, support=20, sharing=0, tokens=blocks * BLOCK, validation=9))
        self.ids = np.concatenate(list(chain.tokens("train"))).reshape(blocks, BLOCK)
        self.block, self.blocks, self.path = BLOCK, blocks, Path("train.bin")
        self.lengths, self.first = None, 0
        self.counts = torch.from_numpy(np.bincount(self.ids[:, 1:].reshape(-1), minlength=VOCABULARY))

    def __len__(self) -> int:
        return len(self.ids)

    read, samples, order = Split.read, Split.samples, Split.order


ALL = {"contexts": contexts}
