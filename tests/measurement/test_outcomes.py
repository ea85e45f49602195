"""Outcomes beside the loss, against their definitions written as loops and against known answers."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from collapselab.core.batch import IGNORED
from collapselab.core.centre_loss import fit_scale
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError
from collapselab.measurement import result as outcomes
from collapselab.measurement.collectors.scores import loss_derivatives
from collapselab.measurement.measure import measure
from collapselab.measurement.result import calibration_error, macro_loss, rare_loss, slope
from collapselab.models.taps import OutputLayer, features, output_layer
from collapselab.records.measurement import Result
from collapselab.records.options import Options
from collapselab.records.outcomes import OUTCOMES, direction, parsed_outcomes


@pytest.fixture(scope="module")
def sure(model: Any) -> Any:
    """The model with an output layer that makes it far too sure."""
    import copy

    other = copy.deepcopy(model)
    with torch.no_grad():
        other.get_output_embeddings().weight.mul_(30)
    return other


def measured(model: Any, corpus: Corpus, **options: Any) -> Result:
    result = measure(model, corpus, null=False, quiet=True, **options)
    assert isinstance(result, Result)
    return result


def losses_by_loops(model: Any, corpus: Corpus, split: str, scale: float = 1.0) -> list[tuple[int, float, float, bool]]:
    """Label, loss, largest probability and whether it is the label's, one token after the other."""
    head, found, part = output_layer(model), [], corpus.splits[split]
    for number in range(len(part)):
        read = part.read(np.array([number]))
        with torch.no_grad():
            logits = scale * (features(model, read.ids)[0, :-1] @ head.weight.T)
        for row, label in zip(logits, read.labels[0].tolist(), strict=True):
            if label != IGNORED:
                chances = row.softmax(0)
                best = int(chances.argmax())
                found.append((label, float(-row.log_softmax(0)[label]), float(chances[best]), best == label))
    return found


def test_every_outcome_is_that_of_the_definition_in_loops(sure: Any, corpus: Corpus) -> None:
    result = measured(sure, corpus, outcomes=("gap", "ece", "macro_loss", "rare_loss", "loss_after_temperature"))
    values = {name: outcome["value"] for name, outcome in result.facts["outcomes"].items()}
    tokens, training = (losses_by_loops(sure, corpus, split) for split in ("validation", "train"))
    loss = math.fsum(one[1] for one in tokens) / len(tokens)
    assert values["gap"] == pytest.approx(loss - math.fsum(one[1] for one in training) / len(training), rel=1e-7)
    by_class: dict[int, list[float]] = {}
    for label, one, *_ in tokens:
        by_class.setdefault(label, []).append(one)
    means = [sum(some) / len(some) for some in by_class.values()]
    assert values["macro_loss"] == pytest.approx(sum(means) / len(means), rel=1e-7)
    counts = corpus.train.counts
    rarer = sorted(by_class, key=lambda label: (int(counts[label]), label))[: len(by_class) // 2]
    rare = [one for label in rarer for one in by_class[label]]
    assert values["rare_loss"] == pytest.approx(sum(rare) / len(rare), rel=1e-7)
    ordered = sorted((float(np.float32(chance)), right) for _, _, chance, right in tokens)
    gaps = [abs(sum(c - r for c, r in map(tuple, part))) for part in np.array_split(np.array(ordered), 15)]
    assert values["ece"] == pytest.approx(sum(gaps) / len(tokens), rel=1e-5)
    scaled = losses_by_loops(sure, corpus, "validation", 1 / result.facts["temperature"])
    assert values["loss_after_temperature"] == pytest.approx(
        math.fsum(one[1] for one in scaled) / len(scaled), rel=1e-7
    )
    assert values["loss_after_temperature"] < loss
    assert result.facts["temperature"] > 2, "it was too sure"


def test_logits_that_are_five_times_too_large_have_a_temperature_of_five() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4000, 6, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    head = OutputLayer(5 * torch.eye(6, dtype=torch.float64))
    scale = fit_scale(lambda scale: loss_derivatives(head, logits, labels, scale), 1.0)
    assert 1 / scale == pytest.approx(5, rel=0.05)
    around = [
        torch.nn.functional.cross_entropy(5 * one * logits, labels) for one in (0.97 * scale, scale, 1.03 * scale)
    ]
    assert around[1] == min(around)
    assert loss_derivatives(head, logits, labels, scale)[0] == pytest.approx(0, abs=1e-6)


def test_known_answers() -> None:
    tokens, loss = torch.tensor([2, 0, 1, 1]), torch.tensor([4.0, 0, 1, 3]).double()
    assert macro_loss(tokens, loss) == pytest.approx((2 + 1 + 3) / 3)
    assert rare_loss(tokens, loss, torch.tensor([9, 9, 5, 5])) == 1, "of three classes the rarer one; ties by id"
    assert macro_loss(torch.zeros(3), torch.zeros(3)) is None
    assert rare_loss(torch.tensor([3]), torch.tensor([3.0]), torch.tensor([3])) is None
    assert slope([0.0, 0.05, 0.1, 0.2], [1.0, 1.5, 2.0, 3.0]) == pytest.approx(10)
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(60_000, generator=generator)
    right = torch.rand(60_000, generator=generator) < confidence
    calibrated = calibration_error(confidence, right)
    assert calibrated is not None
    assert calibrated < 0.012, "a calibrated model: what is left is chance"
    assert calibration_error(torch.full((100,), 0.9), torch.zeros(100, dtype=torch.bool)) == pytest.approx(0.9)
    assert calibration_error(torch.zeros(0), torch.zeros(0, dtype=torch.bool)) is None


def test_the_order_of_tokens_does_not_change_the_calibration_error() -> None:
    generator = torch.Generator().manual_seed(1)
    confidence = torch.randint(5, (500,), generator=generator) / 5  # many ties
    right = torch.rand(500, generator=generator) < 0.4
    order = torch.randperm(500, generator=generator)
    assert calibration_error(confidence, right) == calibration_error(confidence[order], right[order])


def test_more_replaced_inputs_are_the_same_and_more(model: Any, corpus: Corpus) -> None:
    plans: list[Any] = []
    original = outcomes.further_scores
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "collapselab.measurement.measure_model.further_scores", lambda plan: (plans.append(plan), original(plan))[1]
        )
        result = measured(model, corpus, outcomes="corruption_slope", seed=3)
    sample = plans[0].splits["validation"].samples.last
    ids = sample.read(0, len(sample)).ids
    changed = {share: outcomes._replaced(plans[0], sample, share, ids, 0) for share in (0.05, 0.1, 0.2)}
    for share, other in changed.items():
        assert float((other != ids).double().mean()) == pytest.approx(share, abs=0.03)
    few, many = changed[0.05], changed[0.2]
    assert (many[few != ids] == few[few != ids]).all()
    assert torch.equal(outcomes._replaced(plans[0], sample, 0.2, ids[5:9], 5), many[5:9]), "by block alone"
    assert result.facts["outcomes"]["corruption_slope"]["value"] is not None


def test_the_loss_on_a_further_corpus_is_in_bits_per_byte(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    source = open_source(["storyworld:stories=5,validation=3,seed=9"])
    recipe = Recipe(tokenizer=str(corpus.path / "tokenizer"), block=32)
    other = build_corpus(source, tmp_path / "other", recipe)
    result = measured(model, corpus, on=[other.path], tokens=600)
    plain = measured(model, corpus, on=other.path, tokens=600)
    tokens = losses_by_loops(model, other, "validation")
    size = sum(len(other.tokenizer().decode(row[1:].tolist(), skip_special_tokens=True).encode()) for row in
               torch.from_numpy(other.validation.ids.astype(np.int64)))  # fmt: skip
    whole = measured(model, corpus, on=other.path)
    value = whole.facts["outcomes"]["loss_on:other"]["value"]
    assert value == pytest.approx(math.fsum(one[1] for one in tokens) / math.log(2) / size, rel=1e-7)
    assert result.facts["outcomes"] == plain.facts["outcomes"]
    assert f"other={other.hash}" == result.facts["options"]["on"]


def test_a_further_corpus_of_another_tokenizer_is_refused(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    source = open_source(["storyworld:stories=3,validation=2,seed=9"])
    other = build_corpus(source, tmp_path / "other", Recipe(tokenizer="bpe:280", block=32))
    with pytest.raises(ConfigError, match=r"other: built with another tokenizer \(bpe:280.*Build it with --tokenizer"):
        measured(model, corpus, on=other.path)
    with pytest.raises(ConfigError, match="two further corpora have that name"):
        measured(model, corpus, on=[corpus.path, corpus.path])


def test_names_are_checked_and_have_one_form() -> None:
    assert Options(outcomes="ece, macro_loss").outcomes == "macro_loss,ece"
    assert parsed_outcomes("all") == ",".join(OUTCOMES)
    assert parsed_outcomes(()) is None
    assert "outcomes" not in Options().facts()
    assert not Options(outcomes="gap").asks("ga")
    assert direction("loss_on:imdb") == -1
    assert direction("width") is None
    with pytest.raises(ConfigError, match="'eec' is not one. Did you mean ece?"):
        Options(outcomes="eec")
    with pytest.raises(ConfigError, match="come by --on DIR"):
        Options(outcomes="loss_on:imdb")
