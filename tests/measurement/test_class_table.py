"""`--classes`: a row for each class, from which the metrics, the loss and the agreement come back."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from collapselab.core.batch import IGNORED
from collapselab.corpus.blocks import Corpus
from collapselab.measurement.measure import measure
from collapselab.models.taps import features, output_layer
from collapselab.records.measurement import Result, write

ROW_MEANS = {"cdnv": "cdnv", "cosine": "cosine_mean", "duality_cos": "duality_cos_mean"}


@pytest.fixture(scope="module")
def result(model: Any, corpus: Corpus) -> Result:
    measured = measure(model, corpus, layers="all", classes=True, tokens=900, quiet=True)
    assert isinstance(measured, Result)
    return measured


@pytest.fixture(scope="module")
def frame(result: Result) -> pd.DataFrame:
    return result.frame("classes")


def test_row_means_give_back_the_pair_metrics_at_every_layer_of_both_splits(
    result: Result, frame: pd.DataFrame
) -> None:
    groups = frame.groupby(["split", "layer"])
    assert set(groups.groups) == {(split, layer) for split in ("train", "validation") for layer in ("1", "2", "last")}
    for (split, layer), rows in groups:
        for column, metric in ROW_MEANS.items():
            expected = result.row(metric, split=split, layer=layer)
            assert rows[column].mean() == pytest.approx(expected.value, rel=1e-9), (split, layer, metric)
            assert len(rows) == expected.classes


def test_sums_over_classes_give_back_agreement_accuracy_and_loss(result: Result, frame: pd.DataFrame) -> None:
    facts = result.facts["splits"]["validation"]
    for layer in ("1", "2", "last"):
        rows = frame[(frame["split"] == "validation") & (frame["layer"] == layer)]
        known = rows[rows["agreement"].notna()]
        for column, metric in (("agreement", "agreement"), ("accuracy", "model_accuracy")):
            hits = (known[column] * known["samples"]).round()
            np.testing.assert_allclose(hits, known[column] * known["samples"].astype(float), atol=1e-9)
            assert (known[column] == hits / known["samples"].astype(float)).all(), "in double precision"
            assert hits.sum() / known["samples"].sum() == result.row(metric, layer=layer).value, (layer, metric)
    assert rows["samples"].sum() == facts["tokens"]
    assert (rows["loss"] * rows["samples"]).sum() / rows["samples"].sum() == pytest.approx(facts["loss"], rel=1e-12)
    assert (rows["count"] == rows["samples"]).all()
    assert frame.loc[frame["layer"] != "last", "loss"].isna().all()


def test_the_loss_of_a_class_is_the_mean_over_its_tokens(model: Any, corpus: Corpus) -> None:
    measured = measure(model, corpus, classes=True, null=False, quiet=True)
    assert isinstance(measured, Result)
    frame = measured.frame("classes")
    rows = frame[frame["split"] == "validation"].set_index("token")
    head, totals, counts = output_layer(model), torch.zeros(320).double(), torch.zeros(320)
    for number in range(len(corpus.validation)):
        read = corpus.validation.read(np.array([number]))
        with torch.no_grad():
            logits = features(model, read.ids)[0, :-1] @ head.weight.T
        for row, label in zip(logits, read.labels[0].tolist(), strict=True):
            if label != IGNORED:
                totals[label] += float(row.logsumexp(0) - row[label])
                counts[label] += 1
    assert len(rows) == int((counts > 0).sum())
    for token in rows.index:
        assert rows["loss"][token] == pytest.approx(float(totals[token] / counts[token]), rel=1e-9)


def test_tokens_have_their_text_kind_and_counts(frame: pd.DataFrame, corpus: Corpus, result: Result) -> None:
    rows = frame[(frame["split"] == "train") & (frame["layer"] == "last")].set_index("token")
    tokenizer = corpus.tokenizer()
    assert len(rows) > 50
    assert {"word start", "continuation", "punctuation"} <= set(rows["kind"])
    for token in rows.index[:60]:
        assert rows["text"][token] == tokenizer.decode([token])
    assert rows["count"].sum() == result.facts["splits"]["train"]["tokens"]
    nearest = rows["nearest"].dropna()
    assert set(nearest) <= set(rows.index)
    assert (nearest != nearest.index).all()


def test_padding_is_no_sample_of_any_class(model: Any, documents: Corpus) -> None:
    measured = measure(model, documents, classes=True, null=False, other_tokenizer=True, quiet=True)
    assert isinstance(measured, Result)
    frame = measured.frame("classes")
    rows = frame[frame["split"] == "validation"]
    assert rows["samples"].sum() == measured.facts["splits"]["validation"]["tokens"]


def test_a_measurement_without_it_is_what_it_was(model: Any, corpus: Corpus, result: Result) -> None:
    plain = measure(model, corpus, layers="all", tokens=900, quiet=True)
    assert isinstance(plain, Result)
    assert "classes" not in plain.facts["options"]
    assert plain.rows == result.rows, "asking for classes changes no value"
    assert list(plain.tables) == ["results"]


def test_the_table_has_a_file_of_its_own_beside_the_measurement(
    result: Result, frame: pd.DataFrame, tmp_path: Path
) -> None:
    result.save(tmp_path / "r.json")
    assert (tmp_path / "r.classes.parquet").is_file()
    assert '"cosine":[' not in (tmp_path / "r.json").read_text()
    pd.testing.assert_frame_equal(Result.load(tmp_path / "r.json").frame("classes"), frame)
    (tmp_path / "whole.json").write_text(result.to_json())
    pd.testing.assert_frame_equal(Result.load(tmp_path / "whole.json").frame("classes"), frame)
    write(tmp_path / "rows.csv", result)
    assert len(pd.read_parquet(tmp_path / "rows.classes.parquet")) == len(frame)
    Result(result.rows, result.facts).save(tmp_path / "r.json")
    assert not (tmp_path / "r.classes.parquet").exists(), "it belonged to what was replaced"


@pytest.mark.slow
def test_two_processes_and_one_that_is_killed_find_the_same(corpus: Corpus, tmp_path: Path) -> None:
    options: dict[str, Any] = {"tokens": 700, "batch": 3, "classes": True, "outcomes": "all"}
    options |= {"layers": "all", "deciders": True}
    state = {"state": str(tmp_path / "state")}
    jobs = [
        ("one", 1, options),
        ("two", 2, options),
        ("killed", 2, options | {"die_at": 6} | state),  # in the validation pass: a process has 4 batches of each split
        ("going on", 2, options | state),
    ]
    script = Path(__file__).parent / "worlds.py"
    command = [sys.executable, str(script), str(tmp_path), str(corpus.path), json.dumps(jobs)]
    subprocess.run(command, check=True, capture_output=True, timeout=400)
    assert any(json.loads((tmp_path / "killed.status").read_text()))
    one, two, again = (Result.load(tmp_path / f"{name}.json") for name in ("one", "two", "going on"))
    pd.testing.assert_frame_equal(again.frame("classes"), two.frame("classes"), check_exact=True)
    assert again.facts["outcomes"] == two.facts["outcomes"]
    assert again.rows == two.rows
    assert one.tables["deciders"] == two.tables["deciders"] == again.tables["deciders"] != []
    assert len(one.facts["outcomes"]) == 6
    for name, outcome in one.facts["outcomes"].items():
        assert outcome["value"] == pytest.approx(two.facts["outcomes"][name]["value"], rel=1e-9), name
    pd.testing.assert_frame_equal(one.frame("classes"), two.frame("classes"), rtol=1e-9, atol=1e-12)


BIG = """
import resource, torch
from collapselab.core.pair_sweep import Sweep, Table
from collapselab.core.points import Points
from collapselab.core.vectors import Vectors
K = 262_144
points = torch.randn(K, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
covariance = torch.eye(4, dtype=torch.float64)
measured = Points.of(Vectors(points), torch.ones(K, dtype=torch.float64), uncentred=True, covariance=covariance)
table = Table(measured, torch.float32, tile=1024, with_rows=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = Sweep(table, slice(0, 512)).sums().rows
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, len(rows.cdnv), int((rows.nearest[:512] >= 0).sum()))
"""


@pytest.mark.slow
def test_a_vocabulary_of_262_144_classes_is_swept_in_megabytes() -> None:
    """One block of rows against all others; K × K numbers of float32 would be 275 GB."""
    done = subprocess.run([sys.executable, "-c", BIG], capture_output=True, text=True, check=True, timeout=300)
    kilobytes, rows, found = map(int, done.stdout.split())
    assert (rows, found) == (262_144, 512)
    assert kilobytes < 300_000
