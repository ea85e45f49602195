"""CKA of class means: the definition, what it does not depend on, and what is compared."""

import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from collapselab import measure
from collapselab.cli import app
from collapselab.core.moments import ClassMoments
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError, DamagedError, RunError
from collapselab.measurement.similarity import cka, similarity
from collapselab.models.build import build_config, build_model
from collapselab.records.result_folder import find_results, layer_file

LABELS = torch.arange(90) % 9


def features(seed: int, dim: int = 4) -> torch.Tensor:
    return torch.randn(90, dim, generator=torch.Generator().manual_seed(seed))


def moments_of(rows: torch.Tensor, labels: torch.Tensor = LABELS, classes: int = 9) -> ClassMoments:
    moments = ClassMoments.empty(classes, rows.shape[1])
    moments.update(rows, labels)
    return moments


def test_cka_is_that_of_the_definition() -> None:
    """Dimensions differ, one class is empty, and counts are unequal."""
    labels = torch.cat([LABELS, torch.zeros(10, dtype=torch.long)])
    pair = [torch.cat([features(seed, dim), features(seed + 7, dim)[:10]]) for seed, dim in ((0, 4), (1, 6))]
    means = [np.stack([rows[labels == label].double().mean(0).numpy() for label in range(9)]) for rows in pair]
    first, second = (rows - rows.mean(0) for rows in means)
    product = np.linalg.norm(first.T @ second) ** 2
    expected = product / (np.linalg.norm(first.T @ first) * np.linalg.norm(second.T @ second))
    assert cka(*(moments_of(rows, labels, 10) for rows in pair)) == pytest.approx(expected, rel=1e-6)


def test_rotation_scale_and_shift_do_not_matter() -> None:
    rotation, _ = torch.linalg.qr(features(3)[:4])
    assert cka(moments_of(features(0)), moments_of(3 * features(0) @ rotation + 5)) == pytest.approx(1, abs=1e-5)
    assert cka(moments_of(features(0)), moments_of(features(1))) < 0.9


def test_few_common_classes_and_equal_means_have_no_value() -> None:
    assert np.isnan(cka(moments_of(features(0)), moments_of(features(1)), min_count=11))
    assert np.isnan(cka(moments_of(features(0)), moments_of(torch.ones(90, 4))))
    with pytest.raises(ConfigError, match="Vocabularies of 9 and 10"):
        cka(moments_of(features(0)), moments_of(features(0), classes=10))


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A model whose two layers were measured, with the class means of both."""
    corpus = build_corpus(
        open_source(["storyworld:stories=30,validation=10"]), tmp_path / "c", Recipe(tokenizer="bpe:300", block=32)
    )
    config = build_config("gpt-neo", vocabulary=corpus.vocabulary, width=16, depth=2, head_size=8, positions=32)
    build_model(config, seed=0).save_pretrained(tmp_path / "model")
    measure(tmp_path / "model", corpus=corpus, layers="all", classes=True, out=f"{tmp_path}/results/")
    return tmp_path / "results"


def test_layers_of_a_model_are_compared(measured: Path) -> None:
    table = similarity([measured], layers="all")
    assert [name.rpartition(" ")[2] for name in table.index] == ["1", "2", "last"]
    assert (np.diag(table) == 1).all()
    assert 0 < table.iloc[0, 2] < 1
    assert table.iloc[0, 2] == table.iloc[2, 0]
    with pytest.raises(ConfigError, match="at least 2 measurements, got 1"):
        similarity([measured])


def test_moments_of_another_layer_are_refused(measured: Path) -> None:
    from collapselab.records.result_folder import kept_moments

    (stored,) = find_results(measured)
    file = kept_moments(stored)
    assert file is not None
    layer_file(file, "1").write_bytes(file.read_bytes())
    with pytest.raises(DamagedError, match="with layer 'last' instead"):
        similarity([measured], layers="all")
    layer_file(file, "1").unlink()
    with pytest.raises(RunError, match="Measure it with --classes"):
        similarity([measured], layers="all")


def test_checkpoints_of_a_run_of_the_first_version_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(Path(__file__).parents[1] / "fixtures" / "version-0.1.0.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    run = next(tmp_path.glob("suite/*/run.json")).parent
    shown = CliRunner().invoke(app, ["similarity", str(run)])
    assert shown.exit_code == 0, shown.output
    assert "1.000" in shown.output
