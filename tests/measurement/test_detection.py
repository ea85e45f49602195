"""`--token-scores`: the table against scikit-learn on features that a loop collects, and through groups and refusals."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from collapselab.core.detection import SCORES
from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError
from collapselab.measurement.collectors.detection import WRONG
from collapselab.measurement.measure import measure
from collapselab.models.taps import features, output_layer
from collapselab.records.measurement import Result
from collapselab.records.tables import DetectionRow


def rows(model: Any, corpus: Corpus, **options: Any) -> dict[tuple[str, str], DetectionRow]:
    result = measure(model, corpus, null=False, quiet=True, **options)
    assert isinstance(result, Result)
    return {(row.against, row.score): row for row in result.tables["detection"]}


def energies(model: Any, corpus: Corpus) -> tuple[list[float], list[bool]]:
    """log Σ exp z of every validation token, and whether its prediction was right, one block after the other."""
    head, part = output_layer(model).weight, corpus.validation
    found: list[float] = []
    right: list[bool] = []
    for number in range(len(part)):
        read = part.read(np.array([number]))
        with torch.no_grad():
            logits = features(model, read.ids)[0, :-1] @ head.T
        found += logits.logsumexp(1).tolist()
        right += (logits.argmax(1) == read.labels[0]).tolist()
    return found, right


@pytest.fixture(scope="module")
def other(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another text with the same tokenizer, in a folder of its own."""
    from collapselab.corpus.build import Recipe, build_corpus
    from collapselab.corpus.sources import open_source

    folder = tmp_path_factory.mktemp("other")
    lines = "\n<|endoftext|>\n".join(f"{n} " * 40 for n in range(40))
    (folder / "train.txt").write_text(lines)
    (folder / "validation.txt").write_text(lines[: len(lines) // 3])
    source = open_source([str(folder / "train.txt")], validation=[str(folder / "validation.txt")])
    recipe = Recipe(tokenizer=str(corpus.path / "tokenizer"), block=32)
    return build_corpus(source, folder / "numbers", recipe).path


def test_the_energy_separates_as_scikit_learn_says(model: Any, corpus: Corpus, other: Path) -> None:
    found = rows(model, corpus, token_scores=True, against=(other,))
    assert {score for _, score in found} == set(SCORES)
    ours, right = energies(model, corpus)
    theirs, _ = energies(model, Corpus(other))
    row = found["numbers", "energy"]
    expected = roc_auc_score([1] * len(ours) + [0] * len(theirs), ours + theirs)
    assert row.auroc == pytest.approx(expected, abs=1e-4)  # scores are kept in float32: some are equal there
    assert (row.positives, row.negatives) == (len(ours), len(theirs))
    assert row.auroc_low <= row.auroc <= row.auroc_high
    wrong = found[WRONG, "energy"]
    assert wrong.auroc == pytest.approx(roc_auc_score(right, ours), abs=1e-4)
    assert (wrong.positives, wrong.negatives) == (sum(right), len(right) - sum(right))


def test_a_copy_of_the_text_cannot_be_told_from_it(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    twin = shutil.copytree(corpus.path, tmp_path / "twin")
    for score in SCORES:
        row = rows(model, corpus, against=twin)["twin", score]
        assert row.auroc == pytest.approx(0.5, abs=1e-12)
        assert row.auroc_low < 0.5 < row.auroc_high


def test_scores_of_groups_and_from_disk_are_those_of_one_pass(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    whole = rows(model, corpus, token_scores=True)
    assert rows(model, corpus, token_scores=True, bootstrap=2, state=tmp_path) == whole


def test_a_model_that_is_always_right_or_wrong_has_no_row_for_wrong_predictions(corpus: Corpus) -> None:
    weight = torch.zeros(corpus.vocabulary, 4)
    weight[:, 0] = 1.0
    labels = set(corpus.validation.read(np.arange(len(corpus.validation))).labels.flatten().tolist())
    weight[min(set(range(corpus.vocabulary)) - labels), 0] = 2.0  # always chosen, never right

    def forward(ids: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(ids % 3, 4).float() + torch.tensor([1.0, 0, 0, 0])

    result = measure(forward=forward, head=weight, corpus=corpus, token_scores=True, null=False, quiet=True)
    assert isinstance(result, Result)
    assert not result.tables.get("detection")


def test_sharded_classes_and_another_tokenizer_are_refused(model: Any, corpus: Corpus, documents: Corpus) -> None:
    with pytest.raises(ConfigError, match="token_scores and shard_classes"):
        measure(model, corpus, token_scores=True, shard_classes=True, quiet=True)
    with pytest.raises(ConfigError, match="tokenizer"):
        measure(model, corpus, against=documents.path, quiet=True)
