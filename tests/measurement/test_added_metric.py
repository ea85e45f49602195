"""A metric is added by one entry of the catalogue: everything else follows from what the entry says."""

import pytest

from collapselab.core.catalogue import METRICS, Metric, Need
from collapselab.core.geometry import Geometry
from collapselab.core.metrics import FUNCTIONS
from collapselab.corpus.blocks import Corpus
from collapselab.measurement.measure import measure
from collapselab.models.build import build_config, build_model
from collapselab.records.measurement import Result


def largest_norm(geometry: Geometry) -> float:
    return float(geometry.norms.max())


def rows_norm(geometry: Geometry) -> float:
    return float(geometry.head_norms.max())


def test_a_metric_of_features_and_one_of_the_output_layer_are_measured(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    means, head = frozenset({Need.MEANS}), frozenset({Need.HEAD})
    for id, function, needs in (("toy", largest_norm, means), ("toy_rows", rows_norm, head)):
        entry = Metric(id=id, name=id, property="toys", formula="max", direction="rises", reference="here", needs=needs)
        monkeypatch.setitem(METRICS, id, entry)
        monkeypatch.setitem(FUNCTIONS, id, function)
    config = build_config("gpt-neo", width=16, depth=2, vocabulary=corpus.vocabulary, positions=corpus.block)
    result = measure(build_model(config, seed=0), corpus, layers="all", bins=2, tokens=400, quiet=True)
    assert isinstance(result, Result)
    toy = [row for row in result.rows if row.metric == "toy"]
    assert {row.split for row in toy} == {"train", "validation"}
    assert {row.layer for row in toy if row.split == "train"} > {"last", "1"}
    assert len({row.bin for row in toy}) > 1
    assert all(row.value is not None and row.null is not None for row in toy if row.bin == "all")
    rows = [row for row in result.rows if row.metric == "toy_rows"]
    assert {(row.split, row.layer) for row in rows} == {("train", "last")}
    assert all(row.value == row.null for row in rows), "no label enters it"
