"""Only classes that occur have rows: the numbers are the same, files have the whole vocabulary, memory falls."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from collapselab import ClassMoments
from collapselab.core.batch import IGNORED
from collapselab.corpus.blocks import Corpus
from collapselab.measurement import plan
from collapselab.measurement.measure import measure
from collapselab.measurement.sample import ByLayer, ClassNumbers
from collapselab.models.build import build_config, build_model
from collapselab.records.measurement import Result


def numbers_of(kept: list[int], below: list[int], vocabulary: int = 10) -> ClassNumbers:
    masks = [torch.zeros(vocabulary, dtype=torch.bool).index_fill(0, torch.tensor(ids), True) for ids in (kept, below)]
    return ClassNumbers(ByLayer(*masks))


def test_labels_become_rows_in_the_order_of_their_ids_and_others_are_ignored() -> None:
    numbers = numbers_of([2, 5, 9], [2, 9])
    labels = torch.tensor([9, 2, 5, 0, IGNORED])
    assert numbers.of(labels).tolist() == [2, 0, 1, IGNORED, IGNORED]
    assert numbers.of(labels, layer="3").tolist() == [2, 0, IGNORED, IGNORED, IGNORED]
    table = torch.arange(20).view(10, 2)
    assert numbers.rows(table).tolist() == [[4, 5], [10, 11], [18, 19]]
    assert ClassNumbers(ByLayer(*[torch.ones(10, dtype=torch.bool)] * 2)).rows(table) is table, (
        "no copy of a whole vocabulary"
    )


def test_a_split_without_any_class_has_one_row_that_nothing_is_counted_in() -> None:
    none = torch.zeros(4, dtype=torch.bool)
    numbers = ClassNumbers(ByLayer(none, none))
    assert numbers.classes == 1
    assert numbers.of(torch.arange(4)).tolist() == [IGNORED] * 4


def test_saved_moments_load_with_the_numbering_of_the_vocabulary(tmp_path: Path) -> None:
    features = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40) % 4 * 2 + 1  # 1, 3, 5, 7 of 10
    whole = ClassMoments.empty(10, 3, covariance=True)
    whole.update(features, labels)
    numbers = numbers_of([1, 3, 5, 7, 8], [1])  # 8 is never seen
    some = ClassMoments.empty(5, 3, covariance=True)
    some.update(features, numbers.of(labels))
    numbers.save(some, tmp_path / "some.safetensors", {"layer": "last"})
    loaded = ClassMoments.load(tmp_path / "some.safetensors")
    assert loaded.classes == 10
    for name in ("counts", "sums", "scatter", "pooled"):
        assert torch.equal(getattr(loaded, name), getattr(whole, name)), name


OPTIONS: dict[str, dict[str, Any]] = {
    "last": {},
    "all layers and bins": {"layers": "all", "bins": 3},
    "min_count": {"layers": "all", "min_count": 4, "bins": 2},
    "resampled": {"bootstrap": 3, "layers": "all"},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", OPTIONS)
def test_numbers_are_those_of_tables_of_the_whole_vocabulary(
    model: nn.Module, corpus: Corpus, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = OPTIONS[case] | {"tokens": 900, "batch": 4, "quiet": True}
    compact = measure(model, corpus, **options)

    class Whole:
        """Rows for every class, of which those that are not kept stay empty."""

        def __new__(cls, kept: ByLayer[torch.Tensor]) -> Any:
            every, numbers = (
                ClassNumbers(ByLayer(*[torch.ones(len(kept.last), dtype=torch.bool)] * 2)),
                ClassNumbers(kept),
            )
            every._numbers = ByLayer(
                *(torch.where(table == IGNORED, IGNORED, torch.arange(len(table))) for table in
                  (numbers._numbers.last, numbers._numbers.below))
            )  # fmt: skip
            return every

    monkeypatch.setattr(plan, "ClassNumbers", Whole)
    whole = measure(model, corpus, **options)
    assert isinstance(compact, Result)
    for a, b in zip(compact.rows, whole.rows, strict=True):
        for name, one in asdict(a).items():
            other = getattr(b, name)
            assert one == other or one == pytest.approx(other, rel=1e-12), (a, b)
    halves = [result.facts["half_sample"] for result in (compact, whole)]
    assert halves[0]["values"] == pytest.approx(halves[1]["values"], rel=1e-12)
    assert halves[0]["changing"] == halves[1]["changing"]


def test_the_tables_of_a_measurement_do_not_grow_with_the_vocabulary(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    real = ClassMoments.empty

    def empty(classes: int, *args: Any, **options: Any) -> ClassMoments:
        made.append(classes)
        return real(classes, *args, **options)

    monkeypatch.setattr(ClassMoments, "empty", empty)
    model = build_model(build_config("gpt-neo", width=8, depth=2, vocabulary=60_000, positions=32), seed=0)
    result = measure(model, corpus, layers="all", tokens=200, quiet=True)
    assert isinstance(result, Result)
    kept = {result.row("cdnv", split=split).classes for split in ("train", "validation")}
    assert set(made) == kept
    assert max(made) < 200
