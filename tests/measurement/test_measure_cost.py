"""The cost model against what the code does: operations counted, tensors weighed, files and messages measured."""

import runpy
import weakref
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from collapselab.core.centre_loss import CentreScores
from collapselab.core.decisions import Decisions
from collapselab.core.metrics import collapse_metrics
from collapselab.core.moments import ClassMoments
from collapselab.core.output_curvature import OutputCurvature
from collapselab.core.pairs import pair_statistics
from collapselab.corpus.blocks import Corpus
from collapselab.measurement import cost as costs
from collapselab.measurement.cost import Cost, Job, Machine, measuring, pair_flops
from collapselab.measurement.distributed import Processes
from collapselab.measurement.measure import measure
from collapselab.measurement.model import MeasuredModel
from collapselab.measurement.resume import ResumeFolder
from collapselab.measurement.sample import RUN, Sample
from collapselab.measurement.sums import LAST, LayerKey, Sums
from collapselab.models.build import build_config, build_model
from collapselab.models.sizes import architecture_of, transformer
from collapselab.models.taps import features
from collapselab.records.options import Options
from collapselab.suite.corpora import CorpusFacts
from collapselab.suite.plan import plan_suite
from collapselab.suite.recipe import parse_suite

DOCS = Path(__file__).parents[2] / "docs"
LLAMA_8B = transformer(
    width=4096, depth=32, vocabulary=128256, feed_forward=14336, heads=32, key_value_heads=8, gated=True, tied=False,
    block_vectors=2 * 4096, last_vectors=4096,
)  # fmt: skip


def counted(run: Callable[[], object]) -> float:
    """Operations of every matrix product; attention written out, as the fused kernel of a CPU is not counted."""
    added = {torch.ops.aten.addmm_: lambda _, left, right, *__, **___: 2 * left[0] * left[1] * right[1]}
    counting = FlopCounterMode(display=False, custom_mapping=added)  # in place they would not be counted
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counting as counter:
        run()
    return counter.get_total_flops()


NEO = {"feed_forward": 256, "heads": 16, "window": 256, "block_vectors": 640, "last_vectors": 128}


@pytest.mark.parametrize(
    ("family", "width", "depth", "block", "sizes"),
    [
        ("gpt-neo", 64, 3, 64, NEO | {"local": 1, "positions": 64}),
        ("gpt-neo", 64, 4, 600, NEO | {"local": 2, "positions": 600}),
        ("llama", 96, 2, 128, {"feed_forward": 256, "heads": 16, "gated": True, "block_vectors": 192, "last_vectors": 96}),
        ("gpt2", 48, 4, 32, {"feed_forward": 192, "heads": 16, "positions": 32, "block_vectors": 13 * 48, "last_vectors": 96}),
        ("pythia", 64, 2, 64, {"feed_forward": 256, "heads": 16, "block_vectors": 13 * 64, "last_vectors": 128}),
        ("qwen3", 64, 2, 64, {"feed_forward": 192, "heads": 16, "key_value_heads": 8, "gated": True, "block_vectors": 136, "last_vectors": 64}),
    ],
)  # fmt: skip
def test_the_operations_of_a_forward_pass_are_those_counted(
    family: str, width: int, depth: int, block: int, sizes: dict[str, Any]
) -> None:
    """Exactly: products are all that is counted, on both sides; in float64, where small heads are not padded."""
    model = build_model(build_config(family, width=width, depth=depth, vocabulary=300, positions=block), seed=0).eval()
    model = model.double()
    architecture = transformer(width=width, depth=depth, vocabulary=300, **sizes)
    assert architecture == architecture_of(model)
    ids = torch.zeros(3, block, dtype=torch.int64)
    assert counted(lambda: features(model, ids)) == 3 * block * architecture.forward_flops(block)
    with_logits = counted(lambda: model(ids))
    assert with_logits == 3 * block * architecture.forward_flops(block, output_layer=True)


def test_training_takes_three_forward_passes() -> None:
    """Backward is counted, but for the one product it spares: the first matrix's input needs a gradient, too."""
    block = 64
    model = build_model(build_config("llama", width=96, depth=2, vocabulary=300, positions=block), seed=0)
    ids = torch.zeros(3, block, dtype=torch.int64)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(ids, labels=ids).loss.backward()
    assert counter.get_total_flops() == architecture_of(model).training_flops(3 * block, block)


def test_a_suite_plans_with_the_same_operations() -> None:
    corpus = CorpusFacts("corpus", Path("nowhere"), "0" * 16, 256, 10_000, 100, 4096)
    text = "question: Why?\ncorpus: {source: storyworld}\nbase: {width: 512, depth: 4, batch: 8, steps: 10}"
    entry = plan_suite(parse_suite(text, name="mine"), {"corpus": corpus}).entries[0]
    config = build_config("gpt-neo", width=512, depth=4, vocabulary=4096, positions=256)
    architecture = architecture_of(build_model(config, seed=0))
    assert entry.parameters == architecture.parameters
    assert entry.flops == architecture.training_flops(10 * 8 * 255, 256)
    assert entry.measure_flops(Options(tokens=1000)) == 2040 * architecture.forward_flops(256, output_layer=True)


def test_the_sizes_of_the_documented_models_are_those_of_the_library() -> None:
    """Parameters to the last one, and what runs; models of the library without memory."""
    ladder = runpy.run_path(str(DOCS / "generate.py"))["LADDER"]
    assert len(ladder) >= 9
    for name, (architecture, config) in ladder.items():
        assert architecture == architecture_of(outline(config)), name


def outline(config: dict[str, Any]) -> Any:
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    library: Any = AutoModelForCausalLM
    with torch.device("meta"):
        return library.from_config(CONFIG_MAPPING[config["model_type"]].from_dict(config))


@pytest.mark.parametrize("points", [3, 400, 1024, 1536])
def test_the_products_of_pairs_are_those_counted(points: int) -> None:
    """Exactly, where blocks of rows are whole, beside the sums of the directions: two products with a vector."""
    cloud = torch.randn(points, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = counted(lambda: pair_statistics(cloud, torch.ones(points, dtype=torch.float64), uncentred=True))
    assert found == pair_flops(points, 24) + 2 * 2 * points * 24


@pytest.fixture
def products_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes time but is no matrix product takes none."""
    for name in ("PAIR", "OUTPUT_PAIR", "FEW_PAIR", "FEW_OUTPUT_PAIR", "EIGEN", "LEVERAGE"):
        monkeypatch.setattr(costs, f"{name}_OPERATIONS", 0)


@pytest.mark.usefixtures("products_only")
def test_the_operations_of_a_catalogue_are_those_counted() -> None:
    """Within 1.5 %: the dim³ of a product with the eigenvectors, and products with vectors."""
    moments, dim, classes = some_moments(512, 64, covariance=True), 64, 512
    weight = torch.randn(classes, dim, generator=torch.Generator().manual_seed(1))
    found = counted(lambda: collapse_metrics(moments, weight=weight))
    architecture = transformer(width=dim, depth=1, vocabulary=classes, feed_forward=1, heads=1)
    foretold = measuring(architecture, Job(1, 1, Options(null=False, bootstrap=2), kept_validation=0)).operations
    assert found == pytest.approx(foretold.pairs + foretold.squares, rel=0.015)
    assert foretold.squares > 0.1 * foretold.pairs, "so that either is seen"


@pytest.mark.usefixtures("products_only")
@pytest.mark.parametrize(
    "options", [Options(), Options(layers="all", null=False), Options(layers="all", train_loss=True)]
)
def test_the_operations_of_a_measurement_are_those_counted(
    options: Options, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 1.5 %: what is tried on the output layer beforehand, tokens in doubt that are decided again, and the above.

    The comparison of logits on a few tokens is left out: it costs the same whatever is measured.
    """
    monkeypatch.setattr(MeasuredModel, "check_logits", lambda *_: None)
    steps, step = [], CentreScores._derivatives
    monkeypatch.setattr(CentreScores, "_derivatives", lambda *given: (steps.append(len(given[1])), step(*given))[1])
    # Smaller heads are padded to 16, which adds operations.
    config = build_config("gpt-neo", width=64, depth=2, vocabulary=320, positions=32, head_size=16)
    model = build_model(config, seed=0)
    results: list[Any] = []
    chosen = {"layers": options.layers, "null": options.null, "train_loss": options.train_loss}
    found = counted(lambda: results.append(measure(model, corpus, tokens=16 * 31, batch=4, quiet=True, **chosen)))  # type: ignore[arg-type]
    half = Sample(corpus.train, name="", length=32, blocks=16, seed=0).ids(0, 8)[:, 1:].unique()
    job = replace(job_of(results[0], options), kept_half=len(half))
    assert 0 < len(steps) <= 2 * 30
    passes = sum(steps) / max(steps)  # the first steps of a fit take a part of its tokens
    monkeypatch.setattr(costs, "CENTRE_FITS", passes / (2 if options.null else 1))
    assert found == pytest.approx(measuring(architecture_of(model), job).operations.total, rel=0.015)


def job_of(result: Any, options: Options) -> Job:
    tokens = {split: facts["tokens"] for split, facts in result.facts["splits"].items()}
    kept, kept_validation = (result.row("cdnv", split=split).classes for split in ("train", "validation"))
    return Job(
        tokens["train"], tokens["validation"], options, block=32, batch=4, kept=kept, kept_validation=kept_validation,
        number_bytes=4,
    )  # fmt: skip


def weighed(thing: Any) -> int:
    """Bytes of all tensors that an object holds."""
    if isinstance(thing, Tensor):
        return thing.numel() * thing.element_size()
    if is_dataclass(thing):
        return sum(weighed(getattr(thing, field.name)) for field in fields(thing))
    held = vars(thing).values() if isinstance(thing, ClassMoments) else thing if isinstance(thing, list) else ()
    return sum(map(weighed, held))


@pytest.mark.parametrize("covariance", [False, True])
def test_the_memory_of_moments_is_that_of_their_tensors(covariance: bool) -> None:
    moments = some_moments(200, 24, covariance=covariance)
    assert weighed(moments) == costs.table_bytes(200, 24, covariance=covariance)


class Held(TorchDispatchMode):
    """The most bytes of tensors that were there at once, of those made meanwhile; views of `before` are none."""

    def __init__(self, *before: Tensor) -> None:
        super().__init__()
        self.before = {tensor.untyped_storage().data_ptr() for tensor in before}
        self.made: list[weakref.ref[Tensor]] = []
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.made += [weakref.ref(out)] if isinstance(out, Tensor) else []
        alive = [tensor for tensor in (made() for made in self.made) if tensor is not None]
        bytes_at = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in alive}
        self.peak = max(self.peak, sum(size for place, size in bytes_at.items() if place not in self.before))
        return out


@pytest.mark.parametrize("softcap", [None, 30.0])
def test_the_memory_of_the_curvature_is_that_foretold(softcap: float | None) -> None:
    """Under a soft cap the slopes are held beside the chances."""
    generator = torch.Generator().manual_seed(0)
    weight, tokens = torch.randn(4096, 8, generator=generator), torch.randn(RUN, 8, generator=generator)
    curvature = OutputCurvature(weight, softcap=softcap)
    with Held(weight, tokens) as held:
        curvature.sums(tokens)
    architecture = transformer(width=8, depth=1, vocabulary=4096, feed_forward=8, heads=1)
    foretold = costs._Sizes(architecture, Job(10, 10, capped=softcap is not None)).curvature()
    assert 0.9 * foretold < held.peak < 1.1 * foretold


def test_a_measurement_holds_the_tables_that_its_cost_names(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is gathered at the end of a pass: layers, nulls, covariances."""
    held: list[int] = []
    real = ResumeFolder.write_group

    def write_group(self: ResumeFolder, split: str, group: int, sums: Sums) -> None:
        held.append(sum(map(weighed, sums.moments.values())))
        real(self, split, group, sums)

    monkeypatch.setattr(ResumeFolder, "write_group", write_group)
    model = build_model(build_config("gpt-neo", width=16, depth=2, vocabulary=320, positions=32), seed=0)
    result = measure(model, corpus, layers="all", tokens=500, quiet=True, state=tmp_path)
    kept = [result.row("cdnv", split=split).classes for split in ("train", "validation")]  # type: ignore[union-attr]
    sizes = costs._Sizes(architecture_of(model), Job(500, 500, Options(layers="all")))
    assert held == [sizes.table_set(classes or 0) for classes in kept]
    assert max(held) < sizes.table_set(320) / 2, "not a row for every class of the vocabulary"


def some_moments(classes: int, dim: int, *, covariance: bool = False, seen: int | None = None) -> ClassMoments:
    generator = torch.Generator().manual_seed(0)
    moments = ClassMoments.empty(classes, dim, covariance=covariance)
    labels = torch.arange(3 * (seen or classes)) % (seen or classes)
    moments.update(torch.randn(len(labels), dim, generator=generator), labels)
    return moments


@pytest.mark.parametrize("null", [False, True])
def test_the_state_on_disk_is_as_large_as_foretold(null: bool, tmp_path: Path) -> None:
    """But for the headers, of which a tensor takes some hundred bytes."""
    moments = {LAST: some_moments(200, 64, covariance=True)}
    if null:
        moments[LayerKey("last", null=True)] = some_moments(200, 64, covariance=True)
    tallies = {key: Decisions.none(200) for key in moments}
    ResumeFolder(tmp_path).write_group("train", 0, Sums(moments))
    ResumeFolder(tmp_path).write_group("validation", 0, Sums(moments, tallies))
    written = {path.name: path.stat().st_size for path in tmp_path.glob("*.safetensors")}
    architecture = transformer(width=64, depth=1, vocabulary=500, feed_forward=64, heads=1)
    foretold = measuring(architecture, Job(1, 1, Options(null=null), kept=200, kept_validation=200)).state
    on_disk = written["train-00.safetensors"] + 3 * written["validation-00.safetensors"]
    assert 0 < on_disk - foretold < 0.03 * foretold


class Received:
    """Being the first process of some, which gets from the others what it has itself; what it gets is weighed."""

    def __init__(self, world: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tensors = 0
        dist = SimpleNamespace(
            get_rank=lambda _: 0,
            get_world_size=lambda _: world,
            all_gather=self.all_gather,
            recv=self.recv,
            broadcast=lambda *_, **__: None,
            broadcast_object_list=lambda *_, **__: None,
            all_gather_object=self.all_gather_object,
        )
        monkeypatch.setattr(import_module("collapselab.measurement.distributed"), "dist", dist)
        self.processes = Processes("some")

    def all_gather(self, parts: list[Tensor], tensor: Tensor, **_: Any) -> None:
        for part in parts:
            part.copy_(tensor)
        self.tensors += (len(parts) - 1) * weighed(tensor)

    def recv(self, tensor: Tensor, *_: Any, **__: Any) -> None:
        self.tensors += weighed(tensor.zero_())

    def all_gather_object(self, things: list[Any], thing: Any, **_: Any) -> None:
        things[:] = [thing] * len(things)
        if isinstance(thing, Sums):
            tallies = [[d.tokens, d.agreed, d.nearest_right, d.head_right] for d in thing.decisions.values()]
            self.tensors += (len(things) - 1) * sum(map(weighed, tallies))


@pytest.mark.parametrize("shard_classes", [False, True])
@pytest.mark.parametrize("options", [Options(), Options(layers="all", null=False, skip_positions=0)])
def test_the_bytes_that_processes_exchange_are_those_foretold(
    options: Options, shard_classes: bool, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the byte, where blocks are whole multiples of processes and batches."""
    world, batch, blocks = 4, 2, 16
    received = Received(world, monkeypatch)
    model = build_model(build_config("gpt-neo", width=16, depth=2, vocabulary=320, positions=32), seed=0)
    chosen: dict[str, Any] = {"layers": options.layers, "null": options.null, "shard_classes": shard_classes}
    chosen["skip_positions"] = options.skip_positions
    measure(model, corpus, tokens=blocks * 31, batch=batch, quiet=True, processes=received.processes, **chosen)
    kept = [
        len(Sample(corpus.splits[split], name="", length=32, blocks=blocks, seed=0).ids(0, blocks)[:, 1:].unique())
        for split in ("train", "validation")
    ]
    job = Job(
        blocks * 31, blocks * 31, replace(options, shard_classes=shard_classes), block=32, processes=world,
        kept=kept[0], kept_validation=kept[1], number_bytes=4,
    )  # fmt: skip
    assert received.tensors == measuring(architecture_of(model), job).received


def llama(options: Options | None = None, **changes: Any) -> Cost:
    return measuring(LLAMA_8B, Job(10**7, 10**6, options or Options(), **changes))


def every_number(cost: Cost) -> Iterator[float]:
    yield from (cost.memory.peak, cost.memory.host, cost.operations.total, cost.folded, cost.state, cost.groups)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (llama(Options(null=False)), llama()),
        (llama(), llama(Options(layers="all"))),
        (llama(kept=50_000), llama()),
        (llama(kept_half=50_000), llama()),
        (llama(), llama(Options(bins=8))),
        (llama(), llama(Options(train_loss=True))),
        (llama(saved=False), llama(saved=False, batch=8)),
        (llama(saved=False), llama()),
    ],
    ids=["null", "layers", "kept", "half", "bins", "train_loss", "batch", "saved"],
)
def test_who_asks_for_more_pays_more(less: Cost, more: Cost) -> None:
    pairs = list(zip(every_number(less), every_number(more), strict=True))
    assert all(cheap <= dear for cheap, dear in pairs)
    assert any(cheap < dear for cheap, dear in pairs)


def test_shards_divide_what_grows_with_classes_and_nothing_else() -> None:
    alone, shared = (
        llama(Options(layers="all", shard_classes=True), processes=many, device="cuda", saved=False).memory
        for many in (1, 8)
    )
    tables = costs.table_bytes(128256, 4096) * 66
    # Within 1 %: the room for features, of which each process now gets those of all.
    assert alone.moments - shared.moments == pytest.approx(tables * 7 / 8, rel=0.01)
    assert alone.model == shared.model
    assert shared.host > costs.table_bytes(128256, 4096), "the first process holds a layer whole, on the host"


def test_resamples_cost_a_catalogue_each_and_both_passes_hold_two_tables() -> None:
    plain, resampled = llama(), llama(Options(bootstrap=84))
    catalogue = resampled.operations.pairs + resampled.operations.squares
    nulls = 3 / 5  # without nulls: one table a split and the output layer, of two and two and it
    # Variances between class means are of two tables with or of four without: a tenth less.
    assert resampled.operations.resampling == pytest.approx(100 * nulls * catalogue, rel=0.1)
    table = costs.table_bytes(128256, 4096, covariance=True)
    assert resampled.memory.training - plain.memory.training == pytest.approx(2 * table, rel=0.01)
    assert resampled.groups == pytest.approx(32 * 2 * 2 * table, rel=0.01)
    assert resampled.memory.host > 2**30


def test_time_is_operations_over_speed_and_only_passes_are_shared() -> None:
    machine = Machine(
        flops=4e14, single=4e13, double=2e13, bandwidth=2e12, network=1e10, host_single=2e12, host_double=1e12
    )
    alone, four = llama(), llama(processes=4)
    assert alone.seconds(machine)["forward"] == alone.operations.forward / 4e14
    assert alone.seconds(machine)["network"] == 0
    for part in ("forward", "collecting", "decisions"):
        assert four.seconds(machine)[part] == pytest.approx(alone.seconds(machine)[part] / 4)
    assert four.seconds(machine)["catalogue"] == alone.seconds(machine)["catalogue"]
    assert four.seconds(machine)["network"] == four.received / 1e10 > 0
    sharded = llama(Options(shard_classes=True), processes=4, device="cuda")
    four = llama(processes=4, kept_half=0)  # sharded classes have no half
    assert sharded.seconds(machine)["catalogue"] == pytest.approx(20 * four.seconds(machine)["catalogue"])
