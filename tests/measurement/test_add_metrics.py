"""A metric that came after a measurement is added to it from its kept moments: nothing runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from collapselab.core.catalogue import METRICS, Need
from collapselab.core.moments import ClassMoments
from collapselab.corpus.blocks import Corpus
from collapselab.measurement.add_metrics import OF_MOMENTS, lacking_metrics
from collapselab.measurement.measure import measure
from collapselab.records.measurement import Result

LATER = ("vci", "directional_cdnv", "dispersion", "participation")


def measured(folder: Path, corpus: Corpus, state: Path, **options: Any) -> Result:
    result = measure(folder, corpus, classes=True, tokens=400, state=state, quiet=True, **options)
    assert isinstance(result, Result)
    return result


def forgotten(state: Path, names: tuple[str, ...] = LATER) -> Path:
    """The finished measurement as an earlier version would have left it: without these metrics."""
    (path,) = state.glob("finished/*.json")
    result = Result.load(path)
    replace(result, rows=[row for row in result.rows if row.metric not in names]).save(path)
    return path


def no_forward(*_: object, **__: object) -> None:
    raise AssertionError("the model was run")


def test_metrics_of_moments_are_added_without_a_forward_pass(
    model: Any, folder: Path, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = measured(folder, corpus, tmp_path)
    path = forgotten(tmp_path)
    assert set(lacking_metrics(Result.load(path))) == set(LATER)
    monkeypatch.setattr(type(model), "forward", no_forward)
    again = measured(folder, corpus, tmp_path)
    for name in LATER:
        row = again.row(name)
        assert row.value == whole.row(name).value is not None, name
        assert (row.null, row.classes, row.tokens, row.version) == (
            None, whole.row(name).classes, whole.row(name).tokens, whole.row(name).version,
        )  # fmt: skip
    assert again.facts["added"]["metrics"] == [id for id in METRICS if id in LATER]
    kept = [row for row in whole.rows if row.metric not in LATER]
    assert [row for row in again.rows if row.metric not in LATER] == kept
    stored = Result.load(path)
    assert stored.rows == again.rows
    assert stored.frame("classes").equals(whole.frame("classes"))
    order = [row.metric for row in again.rows if (row.split, row.layer, row.bin) == ("train", "last", "all")]
    assert order == [id for id in METRICS if id in order]


def test_a_second_call_adds_nothing_more(folder: Path, corpus: Corpus, tmp_path: Path) -> None:
    measured(folder, corpus, tmp_path)
    path = forgotten(tmp_path)
    first = measured(folder, corpus, tmp_path)
    stamp = path.stat().st_mtime_ns
    assert measured(folder, corpus, tmp_path).rows == first.rows
    assert path.stat().st_mtime_ns == stamp


@pytest.mark.parametrize("fault", ["gone", "damaged", "of another sample"])
def test_without_its_own_moments_a_measurement_stays_as_it_is(
    folder: Path, corpus: Corpus, tmp_path: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(folder, corpus, tmp_path)
    path = forgotten(tmp_path)
    moments = path.with_suffix(".safetensors")
    assert moments.exists()
    if fault == "gone":
        moments.unlink()
    elif fault == "damaged":
        moments.write_bytes(moments.read_bytes()[:-9] + b"damaged!!")
    else:
        other = ClassMoments.empty(320, 12, covariance=True)
        other.update(torch.randn(50, 12), torch.arange(50) % 7)
        other.save(moments)
    result = measure(folder, corpus, classes=True, tokens=400, state=tmp_path)
    assert isinstance(result, Result)
    assert not {row.metric for row in result.rows} & set(LATER)
    assert ("of another sample" in capsys.readouterr().err) == (fault == "of another sample")


def test_what_needs_more_than_moments_is_not_added(folder: Path, corpus: Corpus, tmp_path: Path) -> None:
    measured(folder, corpus, tmp_path)
    forgotten(tmp_path, ("duality_frobenius", "ncc_loss", "curvature"))
    result = measured(folder, corpus, tmp_path)
    assert not {row.metric for row in result.rows} & {"duality_frobenius", "ncc_loss", "curvature"}
    assert Need.HEAD not in OF_MOMENTS
