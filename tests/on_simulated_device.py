"""The simulated accelerator itself, and the package on it; `test_simulated_device.py` runs this file."""

import gc
import random
from collections import Counter
from itertools import islice
from typing import Any

import pytest
import torch
from pandas.testing import assert_frame_equal
from torch import Tensor, nn

from collapselab import ClassMoments, NearestCentre, build_corpus, collapse_metrics, measure
from collapselab.core import devices, moments
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe
from collapselab.corpus.sources import open_source
from collapselab.measurement import measure_model
from collapselab.measurement.plan import MeasurePlan
from collapselab.models.families import FAMILIES
from collapselab.models.taps import OutputLayer
from collapselab.records.measurement import Result
from collapselab.training.heads import HEADS, OF_DONORS
from collapselab.training.interventions import INTERVENTIONS
from collapselab.training.loss import next_token_loss
from simulated_device import simulated_device
from waits import Waits, gpt2, measured_with_waits, steps_of, waits_of_last


class TestDevice:
    def test_results_stay_on_the_device_and_come_back_equal(self) -> None:
        left, right = torch.randn(3, 4), torch.randn(4, 5)
        with simulated_device():
            product = left.to("sim") @ right.to("sim")
            assert product.device == torch.device("sim:0")
            assert torch.equal(product.cpu(), left @ right)

    def test_mixing_with_host_tensors_is_refused(self) -> None:
        with simulated_device(), pytest.raises(RuntimeError, match="same device"):
            torch.ones(3, device="sim") + torch.ones(3)

    def test_numbers_of_the_host_may_be_mixed_in(self) -> None:
        with simulated_device():
            assert (torch.ones(2, device="sim") + torch.tensor(2.0)).cpu().tolist() == [3.0, 3.0]

    def test_numpy_is_refused(self) -> None:
        with simulated_device(), pytest.raises(TypeError, match="cpu"):
            torch.ones(3, device="sim").numpy()

    @pytest.mark.parametrize(
        ("ask", "waits"),
        [
            (lambda x: x.sum().item(), 1), (lambda x: bool((x > 0).all()), 1), (lambda x: x.cpu(), 1),
            (lambda x: x.tolist(), 1), (lambda x: x.nonzero(), 1), (lambda x: x[x > 0], 1),
            (lambda x: x.unique(), 1), (lambda x: torch.equal(x, x), 1), (lambda x: torch.empty(3).copy_(x), 1),
            (lambda x: x[torch.tensor([0])], 0), (lambda x: x.sum() + 1, 0), (lambda x: torch.where(x > 0, x, 0), 0),
        ],
    )  # fmt: skip
    def test_every_wait_of_the_host_is_counted(self, ask: Any, waits: int) -> None:
        with simulated_device() as device:
            x = torch.arange(3.0).to("sim")
            ask(x)
        assert device.waits.total() == waits

    def test_gradients_flow(self) -> None:
        layer, x = nn.Linear(4, 2), torch.randn(3, 4)
        layer(x).square().sum().backward()
        expected = layer.weight.grad
        layer.zero_grad()
        with simulated_device():
            layer.to("sim")
            layer(x.to("sim")).square().sum().backward()
            assert layer.weight.grad is not None
            assert expected is not None
            torch.testing.assert_close(layer.weight.grad.cpu(), expected)

    def test_peak_is_the_most_bytes_at_once(self) -> None:
        with simulated_device() as device:
            for _ in range(5):
                held = torch.zeros(1000, device="sim")
                del held
                gc.collect()
            assert device.bytes == 0
        assert device.peak == 4000

    def test_a_device_without_float64_refuses_it(self) -> None:
        with simulated_device(float64=False), pytest.raises(TypeError, match="float64"):
            torch.ones(3, device="sim").double()

    def test_device_is_there_only_inside_the_block(self) -> None:
        with simulated_device():
            assert torch.accelerator.is_available()
        assert not torch.accelerator.is_available()


@pytest.fixture(autouse=True)
def same_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sum in parts of the CPU's size, so that sums come out bit for bit."""
    monkeypatch.setitem(moments.PART_BYTES, "accelerator", moments.PART_BYTES["cpu"])


def same(value: float | None, rel: float, absolute: float = 1e-9) -> Any:
    return None if value is None else pytest.approx(value, rel=rel, abs=absolute)


def _metrics(features: Tensor, labels: Tensor, weight: Tensor) -> dict[str, float | None]:
    collected = ClassMoments.empty(len(weight), features.shape[1], features.device, covariance=True)
    for start in range(0, len(labels), 100):
        collected.update(features[start : start + 100], labels[start : start + 100])
    decisions = NearestCentre(collected, weight=weight).decide(features, labels)
    found = collapse_metrics(collected, weight=weight, decisions=decisions)
    return {name: measured.value for name, measured in found.items()}


def test_metrics_of_tensors_equal_those_of_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    features, weight = torch.randn(500, 16, generator=generator), torch.randn(20, 16, generator=generator)
    labels = torch.randint(0, 20, (500,), generator=generator)
    expected = _metrics(features, labels, weight)
    with simulated_device():
        found = _metrics(features.to("sim"), labels.to("sim"), weight.to("sim"))
    # Not to the bit: the order of sums inside LAPACK depends on the alignment of memory.
    assert found == {name: same(value, 1e-9) for name, value in expected.items()}
    assert sum(value is not None for value in found.values()) > 40


OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "deciders and push": {"deciders": True, "push": "-0.3,0.3", "bins": 3, "min_count": 2},
    "contexts": {"contexts": (1, 2), "min_uses": 5, "classes": True},
    "outcomes": {"outcomes": "all", "train_loss": True, "per_class": 5},
    "bootstrap": {"bootstrap": 3},
}
"""Together every option of a measurement that adds to what is collected."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    source = open_source(["storyworld:stories=20,validation=5"])
    return build_corpus(source, tmp_path_factory.mktemp("text") / "corpus", Recipe(tokenizer="bpe:300", block=32))


@pytest.mark.parametrize("name", OPTIONS)
def test_measuring_equals_the_cpu_with_few_waits(name: str, corpus: Corpus) -> None:
    result, waits = measured_with_waits(corpus, 2, **OPTIONS[name])
    assert result.facts["device"] == "sim:0"
    assert_equal(result, measured_on_cpu(corpus, **OPTIONS[name]))
    assert_few(waits)


def test_more_layers_are_no_more_waits(corpus: Corpus) -> None:
    assert_few(measured_with_waits(corpus, 6)[1])


def assert_few(found: Waits) -> None:
    """Assert that the host waits at most twice in a training batch, and six times in one of validation.

    One of these is in the library's forward pass.
    """
    for split, most in (("train", 2), ("validation", 6)):
        assert len(found[split]) > 1
        for batch, waits in enumerate(found[split]):
            assert waits.total() <= most, (split, batch, waits)


def measured_on_cpu(corpus: Corpus, **options: Any) -> Result:
    result = measure(gpt2(corpus, 2), corpus, layers="all", batch=16, dtype="float32", quiet=True, **options)
    assert isinstance(result, Result)
    return result


def assert_equal(found: Result, expected: Result) -> None:
    """Assert that two results have the same values, but for rounding.

    The attention of the CPU has a kernel of its own, whose float32 features differ by about 1e-7.
    """
    assert found.frames.keys() == expected.frames.keys()
    for name, frame in found.frames.items():
        assert_frame_equal(frame, expected.frames[name], rtol=1e-5, atol=1e-6, check_exact=False)
    for outcome, value in expected.facts.get("outcomes", {}).items():
        assert found.facts["outcomes"][outcome]["value"] == same(value["value"], 1e-5, 1e-6), outcome


def test_measuring_without_float64_takes_moments_to_the_cpu(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "WITHOUT_FLOAT64", ["sim"])
    monkeypatch.setattr(moments, "WITHOUT_FLOAT64", ["sim"])
    options = OPTIONS["deciders and push"] | OPTIONS["contexts"] | {"outcomes": "all", "train_loss": True}
    with simulated_device(float64=False):
        with pytest.raises(ValueError, match="float64"):
            ClassMoments.empty(3, 3, device="sim")
        found = measure(gpt2(corpus, 2).to("sim"), corpus, layers="all", batch=16, quiet=True, **options)  # type: ignore[arg-type]
    assert isinstance(found, Result)
    assert_equal(found, measured_on_cpu(corpus, **options))


@pytest.fixture(scope="module")
def many_classes(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Thousands of classes, so that tables take most of the memory."""
    folder, shares = tmp_path_factory.mktemp("text"), [1 / (rank + 3) for rank in range(3000)]
    for split, length in (("train", 30_000), ("validation", 6_000)):
        drawn = random.Random(split).choices(range(0x4E00, 0x4E00 + 3000), shares, k=length)
        (folder / f"{split}.txt").write_text("".join(map(chr, drawn)), encoding="utf-8")
    source = open_source([str(folder / "train.txt")], validation=[str(folder / "validation.txt")])
    return build_corpus(source, folder / "corpus", Recipe(tokenizer="characters", block=32))


@pytest.mark.parametrize(
    "options",
    [{}, {"layers": "all", "deciders": True}, {"outcomes": "all", "push": "-0.3,0.3", "null": False}],
    ids=["defaults", "all layers", "outcomes"],
)
def test_peak_of_device_memory_is_the_estimate(
    options: dict[str, Any], many_classes: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[MeasurePlan] = []
    monkeypatch.setattr(measure_model, "check_memory", plans.append)
    with simulated_device() as device:
        model = gpt2(many_classes, depth=3, width=64).to("sim")  # type: ignore[arg-type]
        gc.collect()
        before = device.bytes
        measure(model, many_classes, batch=32, quiet=True, **options)
        peak = device.peak - before
    estimate = measure_model.needed_bytes(plans[0]) - measure_model.OVERHEAD_BYTES
    assert 0.7 < estimate / peak < 1.3, (estimate, peak)


@pytest.mark.parametrize("name", INTERVENTIONS)
def test_steps_with_an_intervention_equal_the_cpu_and_wait_once(name: str) -> None:
    dose = f"{name}:{'+' if INTERVENTIONS[name].signs == 'both' else ''}0.3"
    assert assert_steps_equal(22, dose).total() <= 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_of_every_family_equals_the_cpu(family: str) -> None:
    assert_steps_equal(1, "within:+0.1", family=family)


@pytest.mark.parametrize("head", [name for name in HEADS if name not in OF_DONORS])
def test_steps_with_every_output_layer_equal_the_cpu(head: str) -> None:
    assert_steps_equal(2, head=head)


def assert_steps_equal(number: int, *intervene: str, **options: str) -> Counter[str]:
    """Assert that losses and weights equal those of the CPU; return what the host waited for in the last step."""
    with simulated_device() as device:  # first: PyTorch counts its devices at the first backward pass
        found, waits = waits_of_last(device, steps_of("sim", *intervene, **options), number)
        weights = {name: tensor.cpu() for name, tensor in found[-1][1].state_dict().items()}
    expected = list(islice(steps_of("cpu", *intervene, **options), number))
    torch.testing.assert_close([loss for loss, _ in found], [loss for loss, _ in expected], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(weights, dict(expected[-1][1].state_dict()), rtol=1e-3, atol=1e-5)
    return waits


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_the_chunked_loss_equals_the_cpu(softcap: float | None) -> None:
    """Also where a label's probability is too small for a float32."""
    generator = torch.Generator().manual_seed(0)
    features, weight = 30 * torch.randn(20, 8, generator=generator), torch.randn(11, 8, generator=generator)
    labels = torch.randint(11, (20,), generator=generator)
    labels[3] = -100

    def loss(device: str) -> list[Tensor]:
        given = [tensor.to(device).requires_grad_() for tensor in (features, weight)]
        value = next_token_loss(given[0], OutputLayer(given[1], softcap=softcap), labels, chunk=7)
        (value / 2).backward()  # type: ignore[no-untyped-call]
        return [value.detach().cpu(), *(one.grad.cpu() for one in given if one.grad is not None)]

    with simulated_device():
        found = loss("sim")
    assert len(found) == 3
    torch.testing.assert_close(found, loss("cpu"))
    assert float(found[0]) > (1 if softcap else 50)
