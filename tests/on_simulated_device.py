"""The simulated accelerator itself, and the package on it; `test_simulated_device.py` runs this file."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from collapselab import ClassMoments, NearestCentre, build_corpus, collapse_metrics, measure
from collapselab.corpus.build import Recipe
from collapselab.corpus.sources import open_source
from simulated_device import simulated_device


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
    from collapselab.core import moments

    monkeypatch.setattr(moments, "PART_BYTES", dict.fromkeys(("cpu", "cuda"), moments.PART_BYTES["cpu"]))


def same(value: float | None, rel: float) -> Any:
    return None if value is None else pytest.approx(value, rel=rel, abs=1e-9)


def _metrics(features: Tensor, labels: Tensor, weight: Tensor) -> dict[str, float | None]:
    moments = ClassMoments.empty(classes=len(weight), dim=features.shape[1], covariance=True)
    for start in range(0, len(labels), 100):
        moments.update(features[start : start + 100], labels[start : start + 100])
    decisions = NearestCentre(moments, weight=weight).decide(features, labels)
    found = collapse_metrics(moments, weight=weight, decisions=decisions)
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


def test_measuring_a_model_equals_the_cpu(tmp_path: Path) -> None:
    source = open_source(["storyworld:stories=20,validation=5"])
    corpus = build_corpus(source, tmp_path / "corpus", Recipe(tokenizer="bpe:300", block=32))
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=corpus.vocabulary, n_embd=16, n_layer=2, n_head=2, n_positions=32, **ends)
    ).eval()
    given: dict[str, Any] = {"corpus": corpus, "layers": "all", "batch": 16, "dtype": "float32"}
    expected = measure(model, **given)
    with simulated_device():
        found = measure(model.to("sim"), **given)  # type: ignore[arg-type]
    assert found.facts["device"] == "sim:0"
    # The attention of the CPU has a kernel of its own, whose float32 features differ by about 1e-7.
    assert len(found.rows) == len(expected.rows)
    for row, other in zip(found.rows, expected.rows, strict=True):
        assert (row.metric, row.layer, row.split) == (other.metric, other.layer, other.split)
        assert row.value == same(other.value, 1e-5), row
