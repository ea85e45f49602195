"""All shipped interventions in whole trainings: a dose of 0, stopping, accumulation, padding, bf16, and two processes."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError, Interrupted
from collapselab.models.taps import OutputLayer
from collapselab.training.checkpointing import Checkpointing
from collapselab.training.interventions import INTERVENTIONS, Intervention
from collapselab.training.interventions.features import batch_means
from collapselab.training.interventions.step import Classes, Penalty, Step
from collapselab.training.settings import settings_from
from training.runs import assert_same_bits, logged, run, weights


def doses(size: str) -> list[str]:
    return [
        f"{name}:{'+' if entry.signs == 'both' and size != '0' else ''}{size}" for name, entry in INTERVENTIONS.items()
    ]


@pytest.mark.usefixtures("one_thread")
def test_a_dose_of_0_of_every_intervention_is_the_run_without_it_bit_for_bit(
    corpus_folder: Path, tmp_path: Path
) -> None:
    for name, intervene in {"none": [], "zero": doses("0"), "sham": [f"{one}:sham" for one in doses("0")]}.items():
        run(corpus_folder, tmp_path / name, intervene=intervene, steps=24, dropout=0.1, weight_decay=0.1)
    for name in ("zero", "sham"):
        assert_same_bits(weights(tmp_path / "none"), weights(tmp_path / name))
        for intervention in INTERVENTIONS:
            assert logged(tmp_path / name, f"{intervention}/penalty"), intervention
            assert set(logged(tmp_path / name, f"{intervention}/lambda")) == {0.0}


@pytest.mark.usefixtures("one_thread")
def test_with_all_of_them_a_stopped_run_goes_on_to_the_same_bits(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, Any] = {"intervene": doses("0.03"), "steps": 30, "options": {"log_every": 1}}
    run(corpus_folder, tmp_path / "whole", **values)
    real = Checkpointing.on_step_end

    def stop(self: Any, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self.stop = state.global_step == 25
        real(self, args, state, control, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointing, "on_step_end", stop)
        with pytest.raises(Interrupted):
            run(corpus_folder, tmp_path / "stopped", **values)
    run(corpus_folder, tmp_path / "stopped", **values)
    assert_same_bits(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))
    for intervention in INTERVENTIONS:
        for what in ("lambda", "rho", "penalty"):
            name = f"{intervention}/{what}"
            assert logged(tmp_path / "whole", name) == logged(tmp_path / "stopped", name) != []
        assert 0.01 < logged(tmp_path / "whole", f"{intervention}/rho")[-1] < 0.1


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("more", [{"precision": "bf16"}, {"options": {"accumulation": 2}}, {"tied": False}], ids=str)
def test_all_of_them_train_in_bf16_in_parts_and_with_an_output_layer_of_its_own(
    more: dict[str, Any], corpus_folder: Path, tmp_path: Path
) -> None:
    run(corpus_folder, tmp_path / "run", intervene=doses("0.03"), steps=24, **more)
    for intervention in INTERVENTIONS:
        assert 0.005 < logged(tmp_path / "run", f"{intervention}/rho")[-1] < 0.5, intervention


@pytest.mark.usefixtures("one_thread")
def test_all_of_them_leave_padding_out(tmp_path: Path) -> None:
    source = open_source(["storyworld:stories=60,validation=8,seed=1"])
    build_corpus(source, tmp_path / "corpus", Recipe(tokenizer="bpe:300", block=512, packing="document"))
    run(tmp_path / "corpus", tmp_path / "run", intervene=doses("0.03"), steps=24, batch=4)
    for intervention in INTERVENTIONS:
        assert 0.005 < logged(tmp_path / "run", f"{intervention}/rho")[-1] < 0.5, intervention


@pytest.mark.parametrize("entry", INTERVENTIONS.values(), ids=lambda entry: str(entry.name))
def test_a_penalty_that_is_called_blind_is_the_same_for_permuted_labels_and_others_are_not(entry: Intervention) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, labels = torch.randn(15, 6, generator=generator), torch.randint(0, 15, (120,), generator=generator)
    features = 3 * weight[labels] + torch.randn(120, 6, generator=generator)
    permuted, sequences = labels[torch.randperm(120, generator=generator)], torch.arange(120) // 30

    def values(of: Tensor) -> list[Tensor]:
        kept: dict[str, Tensor] = {}
        drawing, found = torch.Generator().manual_seed(1), []
        for number in range(3):  # tables of means are used from the second step on
            classes = Classes(features, of, vocabulary=15)
            step = Step(features, of, sequences, classes, OutputLayer(weight), number, drawing, kept, lambda one: one)
            penalty = entry.penalty(step)
            assert penalty is not None
            found.append(penalty.value if isinstance(penalty, Penalty) else penalty)
        return found

    same = all(torch.equal(*pair) for pair in zip(values(labels), values(permuted), strict=True))
    assert same == entry.blind


def test_the_table_of_means_of_two_processes_is_that_of_one() -> None:
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(60, 4, generator=generator), torch.randint(0, 12, (60,), generator=generator)
    parts = [slice(0, 25), slice(25, 60)]
    whole: dict[str, Tensor] = {}
    kept: list[dict[str, Tensor]] = [{}, {}]
    for _ in range(3):
        batch_means(_step(features, labels, whole, lambda one: one))
        totals = _totals(2)
        threads = [
            threading.Thread(target=batch_means, args=(_step(features[now], labels[now], own, total),))
            for now, own, total in zip(parts, kept, totals, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        features = features + torch.randn(60, 4, generator=generator)
        labels = labels.roll(7)
    for own in kept:
        assert torch.equal(own["counts"], whole["counts"])
        assert_close(own["means"], whole["means"])
    assert torch.equal(kept[0]["means"], kept[1]["means"])


def _step(features: Tensor, labels: Tensor, kept: dict[str, Tensor], total: Callable[[Tensor], Tensor]) -> Step:
    classes, head = Classes(features, labels, vocabulary=15), OutputLayer(torch.ones(15, 4))
    return Step(features, labels, labels * 0, classes, head, 0, torch.Generator(), kept, total)


def _totals(processes: int) -> list[Callable[[Tensor], Tensor]]:
    """The sum over threads that all call it equally often, in place of one over processes."""
    barrier, given = threading.Barrier(processes), [torch.empty(0)] * processes

    def total(rank: int, tensor: Tensor) -> Tensor:
        given[rank] = tensor
        barrier.wait(timeout=20)
        summed = torch.stack(given).sum(0)
        barrier.wait(timeout=20)
        return summed

    return [lambda tensor, rank=rank: total(rank, tensor) for rank in range(processes)]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("withn:+0.1", "withn is not an intervention. Did you mean within\\?"),
        ("uniform_mean:+0.1", "Did you mean uniform_means\\?"),
        ("within:0.1", "within:0.1 has no sign. Both exist: write within:\\+0.1 or within:-0.1"),
        ("floor:-0.1", "floor:-0.1 has a -, but floor acts in one direction. Write floor:0.1"),
        ("noise:-0.1", "has a -, but noise acts in one direction"),
        ("flat:-1e9", "flat:-1e9 has a dose above 10"),
        ("dual:+0.1@0.5", "is not NAME:DOSE"),
        (
            "zzz:1",
            "Choose from within, floor, cdnv, simreg, disperse, uniform, uniform_means, dual, dual_uniform, isotropy",
        ),
    ],
)
def test_bad_input_is_refused_by_the_settings(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_from({"width": 16, "depth": 1, "intervene": [text]})
