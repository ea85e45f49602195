"""`sphere` and `class-means`: checkpoints are plain models of the library that compute what the heads are defined as."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError
from collapselab.measurement.measure import measure
from collapselab.models.build import build_config, build_model
from collapselab.models.taps import features, last_norm
from collapselab.records.measurement import Result
from collapselab.records.run import RunFolder
from collapselab.training.heads import HEADS
from collapselab.training.heads.frozen import HeadInputs
from collapselab.training.heads.normalised import MeanRows
from training.runs import assert_same_bits, logged, run, run_in_two, weights

HEAD, GAIN, BIAS = "lm_head.weight", "transformer.ln_f.weight", "transformer.ln_f.bias"
BOTH = ("sphere", "class-means", "centred")


@pytest.mark.parametrize("head", BOTH)
def test_a_checkpoint_is_measured_with_the_loss_of_its_training(
    head: str, corpus_folder: Path, tmp_path: Path, capsys: Any
) -> None:
    """The library computes the logits; `measure` compares them with features and output layer, and finds this loss."""
    made = run(corpus_folder, tmp_path, head=head, tied=False, steps=20)
    model = AutoModelForCausalLM.from_pretrained(RunFolder(tmp_path).checkpoints()[-1].path).eval()
    measured = measure(model, corpus_folder, quiet=True)
    assert isinstance(measured, Result)
    assert measured.facts["splits"]["validation"]["loss"] == pytest.approx(made[-1].val_loss, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("head", BOTH)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_stopped_training_goes_on_to_the_same_bits(
    head: str, precision: str, corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, Any] = {"head": head, "tied": False, "precision": precision}
    run(corpus_folder, tmp_path / "whole", **values)
    run_in_two(corpus_folder, tmp_path / "two", monkeypatch, **values)
    assert_same_bits(weights(tmp_path / "whole"), weights(tmp_path / "two"))
    assert all(math.isfinite(loss) for loss in logged(tmp_path / "two", "loss"))


def test_sphere_has_rows_of_one_length_that_is_learned(corpus_folder: Path, tmp_path: Path) -> None:
    run(corpus_folder, tmp_path, head="sphere", tied=False, steps=10)
    lengths = []
    for first in (True, False):
        of = weights(tmp_path, first=first)
        norms = of[HEAD].norm(dim=1)
        torch.testing.assert_close(norms, norms.mean().expand_as(norms), rtol=1e-5, atol=0)
        assert torch.equal(of[GAIN], torch.ones(16))
        assert torch.equal(of[BIAS], torch.zeros(16))
        lengths.append(float(norms.mean()))
    assert abs(lengths[1] / lengths[0] - 1) > 0.01


def test_rows_of_centred_sum_to_zero_and_are_learned(corpus_folder: Path, tmp_path: Path) -> None:
    """Subtracting the mean row changes no prediction, so the first loss is that of a learned head."""
    run(corpus_folder, tmp_path / "centred", head="centred", tied=False, steps=10)
    run(corpus_folder, tmp_path / "learned", tied=False, steps=10)
    first, last = (weights(tmp_path / "centred", first=first)[HEAD].double() for first in (True, False))
    for rows in (first, last):
        assert float(rows.sum(0).norm() / rows.norm()) < 1e-5
    assert float((last - first).norm() / first.norm()) > 0.1
    plain = weights(tmp_path / "learned", first=True)[HEAD].double()
    torch.testing.assert_close(first, plain - plain.mean(0), rtol=0, atol=1e-6)
    assert float(plain.sum(0).norm() / plain.norm()) > 0.5
    losses = [RunFolder(tmp_path / head).read_log()[0]["val_loss"] for head in ("centred", "learned")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_rows_of_sphere_are_of_one_length_about_their_mean_too(corpus_folder: Path, tmp_path: Path) -> None:
    """`head_norm_cv` is of these lengths. Rows of one length that share a vector differ in them."""
    run(corpus_folder, tmp_path, head="sphere", tied=False, steps=10)
    rows = weights(tmp_path)[HEAD][Corpus(corpus_folder).train.counts > 0].double()
    about = (rows - rows.mean(0)).norm(dim=1)
    assert 16 < len(rows) < 300
    assert float(rows.sum(0).norm() / rows.norm()) < 1e-3
    assert float(about.std() / about.mean()) < 1e-4


def test_features_of_sphere_are_of_one_length(corpus_folder: Path, tmp_path: Path) -> None:
    run(corpus_folder, tmp_path, head="sphere", tied=False, steps=20)
    model = AutoModelForCausalLM.from_pretrained(RunFolder(tmp_path).checkpoints()[-1].path).eval()
    norms = features(model, Corpus(corpus_folder).train[0][None].long())[0].norm(dim=1)
    torch.testing.assert_close(norms, torch.full_like(norms, 4.0), rtol=0.02, atol=0)


def test_class_means_computes_its_definition(corpus_folder: Path, tmp_path: Path) -> None:
    """Logits of the library against τ⟨ĥ, m̂_c⟩ + log π_c, one token and class after the other, up to a constant."""
    run(corpus_folder, tmp_path, head="class-means", tied=False, steps=12)
    corpus, of = Corpus(corpus_folder), weights(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(RunFolder(tmp_path).checkpoints()[-1].path).eval()
    ids = corpus.train[0][None].long()
    with torch.no_grad():
        logits, h = model(ids).logits[0].double(), features(model, ids)[0].double()
    means, seen = _mean_directions(model, corpus), corpus.train.counts > 0
    assert 0 < int(seen.sum()) < len(means)
    centre = means[seen].mean(0)
    gain = of[GAIN].double()
    assert (gain == gain[0]).all()
    assert float(gain[0]) != 1
    tau = float(gain[0]) * math.sqrt(16)
    counts = corpus.train.counts.double() + 1
    labels = seen.nonzero().squeeze(1).tolist()
    for token in (0, 5, 20):
        direction = _unit(h[token])
        expected = torch.tensor(
            [tau * float(direction @ _unit(means[c] - centre)) + math.log(counts[c] / counts.sum()) for c in labels]
        )
        apart = logits[token, labels] - expected
        assert float(apart.std()) < 0.02 * float(expected.std())  # ε of the norm, where features are still small


def test_rows_of_class_means_point_along_the_means_of_their_own_checkpoint(corpus_folder: Path, tmp_path: Path) -> None:
    """`duality_cos_mean` is 1, but for the part of a row that holds log π_c, in every checkpoint after the first."""
    made = run(corpus_folder, tmp_path, head="class-means", tied=False, epochs=0.5, steps=None, checkpoints="0,0.25")
    assert len(made) == 3
    for checkpoint in RunFolder(tmp_path).checkpoints()[1:]:
        model = AutoModelForCausalLM.from_pretrained(checkpoint.path).eval()
        measured = measure(model, corpus_folder, quiet=True)
        assert isinstance(measured, Result)
        of_train = {row.metric: row.value for row in measured.rows if row.split == "train"}
        assert of_train["duality_cos_mean"] > 0.999


def test_a_training_of_class_means_does_not_depend_on_its_checkpoints(corpus_folder: Path, tmp_path: Path) -> None:
    values: dict[str, Any] = {"head": "class-means", "tied": False, "steps": None, "epochs": 0.5}
    run(corpus_folder, tmp_path / "few", **values)
    run(corpus_folder, tmp_path / "many", **values, checkpoints="0,0.1,0.2,0.3,0.4")
    assert len(RunFolder(tmp_path / "many").checkpoints()) == 6
    assert_same_bits(weights(tmp_path / "few"), weights(tmp_path / "many"))
    assert logged(tmp_path / "few", "loss") == logged(tmp_path / "many", "loss")


def _mean_directions(model: Any, corpus: Corpus) -> Tensor:
    """The mean of ĥ over the tokens of each class, token after token."""
    sums: dict[int, list[Tensor]] = {}
    for block in range(len(corpus.train)):
        blocks = corpus.train.read([block])
        with torch.no_grad():
            entering = features(model, blocks.ids)[0, :-1].double()
        for one, label in zip(entering, blocks.labels[0].tolist(), strict=True):
            sums.setdefault(label, []).append(_unit(one))
    means = torch.zeros(300, 16, dtype=torch.float64)
    for label, directions in sums.items():
        means[label] = torch.stack(directions).mean(0)
    return means


def _unit(vector: Tensor) -> Tensor:
    vector = vector - vector.mean()
    return vector / vector.norm()


def test_the_table_is_the_mean_of_directions_up_to_its_window_and_exponential_after() -> None:
    model = build_model(build_config("gpt-neo", width=8, depth=1, vocabulary=3, positions=8, tied=False), seed=0)
    rows = HEADS["class-means"].make(model, HeadInputs(torch.ones(3)), torch.Generator())
    assert isinstance(rows, MeanRows)
    generator = torch.Generator().manual_seed(0)
    expected, number = torch.zeros(8), 0
    for _ in range(30):
        some = torch.randn(10, 8, generator=generator)
        rows.observe(some, torch.tensor([1] * 10))
        rows.after_step(lambda tensor: tensor)
        directions = torch.stack([_unit(one) for one in some])
        expected = expected + (directions.sum(0) - 10 * expected) / (min(number, 100) + 10)
        number += 10
    torch.testing.assert_close(rows.means[1], expected, rtol=1e-4, atol=1e-6)
    assert rows.seen.tolist() == [0, 300, 0]


@pytest.mark.parametrize("family", ["gpt-neo", "gpt2", "llama", "pythia", "qwen3"])
def test_the_last_norm_of_every_family_is_found(family: str) -> None:
    config = build_config(family, width=32, depth=1, vocabulary=20, positions=8, tied=False, head_size=16)
    model = build_model(config, seed=0)
    norm = last_norm(model)
    assert norm is not None
    with torch.no_grad():
        norm.weight.zero_()
        if getattr(norm, "bias", None) is not None:
            norm.bias.zero_()
        assert not features(model, torch.arange(4)[None]).any()


@pytest.mark.slow
@pytest.mark.parametrize("head", BOTH)
def test_other_initial_weights_keep_their_bits(head: str, corpus_folder: Path, tmp_path: Path) -> None:
    for name in ("learned", head):
        run(corpus_folder, tmp_path / name, head=name, tied=False, steps=1)
    learned, other = (weights(tmp_path / name, first=True) for name in ("learned", head))
    for name in (HEAD, GAIN, BIAS):
        learned.pop(name), other.pop(name)
    assert_same_bits(learned, other)


def test_a_family_without_a_place_for_priors_is_refused(corpus_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="class-means keeps log π_c in the bias of the last norm, but llama has none"):
        run(corpus_folder, tmp_path, head="class-means", tied=False, family="llama", head_size=16)
    assert not RunFolder(tmp_path).exists()
    run(corpus_folder, tmp_path / "sphere", head="sphere", tied=False, family="llama", head_size=16, steps=1)


@pytest.mark.parametrize("head", BOTH)
def test_tied_embeddings_are_refused(head: str, corpus_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"head: {head} is not the input embeddings, but tied is true"):
        run(corpus_folder, tmp_path / "run", head=head)
    assert not RunFolder(tmp_path / "run").exists()
