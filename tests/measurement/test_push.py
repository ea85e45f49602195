"""`--push`: features moved toward the class means that the model expects, against the definition written as loops."""

import io
import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.centre_loss import CentreScores
from collapselab.core.decisions import nearest_centre, output_classifier
from collapselab.core.moments import ClassMoments
from collapselab.core.storage import load_tensors, save_tensors
from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError
from collapselab.measurement.collector import LAST, Collectors
from collapselab.measurement.collectors.decisions import CentreLosses, NearestCentres
from collapselab.measurement.collectors.push import Push
from collapselab.measurement.distributed import Processes
from collapselab.measurement.measure import measure
from collapselab.measurement.sample import ByLayer, ClassNumbers
from collapselab.measurement.show import shown
from collapselab.models.build import build_config, build_model
from collapselab.models.taps import OutputLayer
from collapselab.records.measurement import Result
from collapselab.records.options import Options
from collapselab.records.tables import PushRow


@pytest.fixture(scope="module")
def model(corpus: Corpus) -> Any:
    config = build_config("gpt-neo", width=16, depth=1, vocabulary=corpus.vocabulary, positions=corpus.block)
    model = build_model(config, seed=0)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(20)  # so that it is sure of something
    return model


@pytest.fixture(scope="module")
def result(model: Any, corpus: Corpus) -> Result:
    measured = measure(model, corpus, push="-0.3,0.2", tokens=300, quiet=True)
    assert isinstance(measured, Result)
    return measured


def row(result: Result, head: str, alpha: float) -> PushRow:
    (found,) = [one for one in result.tables["push"] if (one.head, one.alpha) == (head, alpha)]
    assert isinstance(found, PushRow)
    return found


def test_features_that_are_not_moved_have_exactly_the_models_scores(result: Result) -> None:
    unmoved, facts = row(result, "own", 0.0), result.facts["splits"]["validation"]
    assert unmoved.loss == facts["loss"]
    assert unmoved.accuracy == facts["accuracy"]
    assert unmoved.agreement == result.row("agreement").value
    assert [one.alpha for one in result.tables["push"]] == [-0.3, 0.0, 0.2] * 2
    assert row(result, "own", 0.2).loss != unmoved.loss


def by_loops(
    head: Tensor, means: Tensor, log_priors: Tensor, tau: float, alpha: float, x: Tensor, labels: list[int]
) -> dict[str, list[float]]:
    """Loss, accuracy and agreement of both heads, and the calibration error of the own one: one token after the other.

    `means` has a row of nan for a class without one.
    """
    known = [c for c in range(len(means)) if not means[c].isnan().any()]
    own_loss = own_right = own_agreed = near_loss = near_right = near_agreed = 0.0
    bins = [[0.0, 0.0] for _ in range(15)]
    for h, label in zip(x, labels, strict=True):
        logits = [float(w @ h) for w in head]
        total = sum(math.exp(logits[c]) for c in known)
        expected = sum((math.exp(logits[c]) / total * means[c] for c in known), start=torch.zeros_like(h))
        moved = h + alpha * (expected - h)
        logits = [float(w @ moved) for w in head]
        chances = [math.exp(one) / sum(map(math.exp, logits)) for one in logits]
        best = max(range(len(head)), key=lambda c: chances[c])
        own_loss -= math.log(chances[label])
        own_right += best == label
        place = min(int(15 * chances[best]), 14)
        bins[place][0] += chances[best]
        bins[place][1] += best == label
        assert label in known
        scores = {c: -tau * float((moved - means[c]).square().sum()) / 2 + float(log_priors[c]) for c in known}
        top = max(scores.values())
        near_loss -= scores[label] - top - math.log(sum(math.exp(one - top) for one in scores.values()))
        nearest = min(known, key=lambda c: float((moved - means[c]).square().sum()))
        among = max(known, key=lambda c: logits[c])
        probable = max(known, key=lambda c: scores[c])
        own_agreed += among == nearest
        near_right += probable == label
        near_agreed += among == probable
    n = len(labels)
    return {
        "own": [own_loss / n, own_right / n, own_agreed / n, sum(abs(a - b) for a, b in bins) / n],
        "centres": [near_loss / n, near_right / n, near_agreed / n],
    }


def plan_of(weight: Tensor, counts: Tensor, alphas: tuple[float, ...]) -> Any:
    """What `Push` takes from a plan, for classes with these counts."""
    cpu = torch.device("cpu")
    model = SimpleNamespace(head=OutputLayer(weight), device=cpu, moments_device=cpu)
    split = SimpleNamespace(numbers=ClassNumbers(ByLayer(*[torch.ones(len(counts), dtype=torch.bool)] * 2)))
    return SimpleNamespace(
        model=model,
        names={"run": "m", "checkpoint": "-"},
        options=SimpleNamespace(alphas=alphas),
        splits={"train": split, "validation": split},
        counts=SimpleNamespace(last=counts),
        processes=Processes(),
    )


def centres_of(moments: ClassMoments, weight: Tensor, x: Tensor, labels: Tensor) -> Any:
    kept = (moments.counts > 0).nonzero().squeeze(1)
    centres = NearestCentres.__new__(NearestCentres)
    centres.nearest = {LAST: nearest_centre(moments, kept)}
    centres.head = SimpleNamespace(last=output_classifier(weight, None, kept))  # type: ignore[assignment]
    losses = CentreLosses.__new__(CentreLosses)
    losses.scores = {LAST: CentreScores(centres.nearest[LAST], moments.counts)}
    losses.scores[LAST].fit(x, labels)
    return Collectors([centres, losses])


def made(weight: Tensor, x: Tensor, labels: Tensor, alphas: tuple[float, ...]) -> Push:
    moments = ClassMoments.empty(len(weight), weight.shape[1])
    moments.update(x, labels)

    plan = plan_of(weight, moments.counts, alphas)
    return Push(plan, "validation", centres_of(moments, weight, x, labels))


def test_every_number_is_that_of_the_definition_in_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(7, 4, generator=generator), torch.randn(60, 4, generator=generator)
    labels = torch.randint(6, (60,), generator=generator)  # class 6 has no mean
    push = made(weight, x, labels, (-0.3, 0.0, 0.25))
    new, their = torch.randn(40, 4, generator=generator), torch.randint(6, (40,), generator=generator)
    push.add("sums", push.scored(new[:25], their[:25]))
    push.add("sums", push.scored(new[25:], their[25:]))
    means = torch.stack([x[labels == c].double().mean(0) for c in range(7)])
    log_priors = torch.bincount(labels, minlength=7).double().div(60).log()
    found = {(one.head, one.alpha): one for one in push.values().tables["push"]}
    assert len(found) == 6
    for alpha in push.alphas:
        expected = by_loops(weight.double(), means, log_priors, push.tau, alpha, new.double(), their.tolist())
        own, centres = found["own", alpha], found["centres", alpha]
        assert [own.loss, own.accuracy, own.agreement, own.ece] == pytest.approx(expected["own"], rel=1e-5)
        assert [centres.loss, centres.accuracy, centres.agreement] == pytest.approx(expected["centres"], rel=1e-5)
        assert (own.tokens, centres.tokens) == (40, 40)


def test_a_label_without_a_mean_is_scored_by_the_output_layer_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(3, 4, generator=generator), torch.randn(20, 4, generator=generator)
    push = made(weight, x, torch.arange(20) % 2, (0.0,))
    push.add("sums", push.scored(x, torch.arange(20) % 3))
    assert [one.tokens for one in push.values().tables["push"]] == [20, 14]


def test_pushing_changes_nothing_where_classes_have_collapsed() -> None:
    """Features are their class means, and the model is sure of the class: they are where they would move to."""
    frame = torch.eye(5) - 1 / 5
    labels = torch.arange(5).repeat(4)
    push = made(60 * frame, frame[labels], labels, (-0.3, 0.0, 0.3))
    push.add("sums", push.scored(frame[labels], labels))
    rows = push.values().tables["push"]
    for one in rows:
        assert one.loss == pytest.approx(rows[1].loss if one.head == "own" else rows[4].loss, abs=1e-6)
        assert (one.accuracy, one.agreement) == (1, 1)
        assert one.ece == pytest.approx(0, abs=1e-6)


def test_tau_is_that_of_the_loss_by_centres(model: Any, corpus: Corpus, result: Result) -> None:
    fitted: list[dict[str, float]] = []
    original = CentreLosses._fitted

    def note(self: CentreLosses) -> dict[str, float]:
        fitted.append(original(self))
        return fitted[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CentreLosses, "_fitted", note)
        measure(model, corpus, push="0", tokens=300, quiet=True)
    assert row(result, "centres", 0.0).tau == fitted[0][LAST]


def test_sums_of_parts_and_from_disk_are_those_of_the_whole(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(3, 4, generator=generator), torch.randn(20, 4, generator=generator)
    labels = torch.arange(20) % 3
    push = made(weight, x, labels, (0.0, 0.5))
    first, second = push.empty(), push.empty()
    first.add("sums", push.scored(x[:8], labels[:8]))
    second.add("sums", push.scored(x[8:], labels[8:]))
    save_tensors(tmp_path / "s.safetensors", first.state(), kind="sums", facts={})
    merged = push.empty()
    merged.load(load_tensors(tmp_path / "s.safetensors", kind="sums")[0])
    merged.merge(second, times=2)
    torch.testing.assert_close(merged.sums["sums"], first.sums["sums"] + 2 * second.sums["sums"], rtol=1e-12, atol=0)


def test_the_table_is_stored_shown_and_a_frame(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "result.json")
    frame = Result.load(tmp_path / "result.json").frame("push")
    assert list(frame["alpha"]) == [-0.3, 0.0, 0.2] * 2
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(shown(result))
    assert "features moved by α" in console.export_text()


def test_a_measurement_without_push_is_what_it_was(model: Any, corpus: Corpus) -> None:
    measured = measure(model, corpus, tokens=300, quiet=True)
    assert isinstance(measured, Result)
    assert "push" not in measured.tables
    assert "push" not in measured.facts["options"]


def test_padding_is_not_scored(model: Any, documents: Corpus) -> None:
    config = build_config("gpt-neo", width=16, depth=1, vocabulary=documents.vocabulary, positions=documents.block)
    measured = measure(build_model(config, seed=0), documents, push="0.1", quiet=True)
    assert isinstance(measured, Result)
    assert row(measured, "own", 0.0).loss == measured.facts["splits"]["validation"]["loss"]
    assert row(measured, "own", 0.0).tokens == int(
        (documents.validation.read(range(len(documents.validation))).labels != IGNORED).sum()
    )


@pytest.mark.parametrize("text", ["", "a", "0.1,", "nan", "inf", "1e9", ",".join(map(str, range(200)))])
def test_what_is_no_list_of_numbers_is_refused(text: Any) -> None:
    with pytest.raises(ConfigError, match="push: .*numbers from -10 to 10"):
        Options(push=text)


def test_one_list_of_numbers_has_one_form() -> None:
    assert Options(push="0.2, -0.1,0.2").push == "-0.1,0,0.2"
    assert Options(push="default").alphas == (-0.3, -0.2, -0.1, 0, 0.1, 0.2, 0.3)
    with pytest.raises(ConfigError, match="push and shard_classes"):
        Options(push="0.1", shard_classes=True)


@pytest.mark.slow
def test_two_processes_and_one_that_is_killed_find_the_same(corpus: Corpus, tmp_path: Path) -> None:
    options: dict[str, Any] = {"tokens": 700, "batch": 3, "push": "-0.2,0.2"}
    state = {"state": str(tmp_path / "state")}
    jobs = [
        ("one", 1, options),
        ("two", 2, options),
        ("killed", 2, options | {"die_at": 6} | state),  # in the validation pass: a process has 4 batches of each split
        ("going on", 2, options | state),
    ]
    script = Path(__file__).parent / "worlds.py"
    command = [sys.executable, str(script), str(tmp_path), str(corpus.path), json.dumps(jobs)]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    assert any(json.loads((tmp_path / "killed.status").read_text()))
    assert list((tmp_path / "state").rglob("validation-*")) == [], "it was finished"
    one, two, again = (Result.load(tmp_path / f"{name}.json").tables["push"] for name in ("one", "two", "going on"))
    assert again == two
    assert len(one) == 6
    for left, right in zip(one, two, strict=True):
        assert (left.tau is None) == (right.tau is None) == (left.head == "own")
        for name in ("tokens", "loss", "ece", "accuracy", "agreement"):
            assert getattr(left, name) == pytest.approx(getattr(right, name), rel=1e-6), name
