"""Spectra of a trained model at every layer, against the formulas of Garrido et al. and reptrix on the raw features."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.measurement.measure import measure
from collapselab.records.measurement import Result

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
BLOCKS, BLOCK = 40, 128


def garrido(features: NDArray[np.float64]) -> float:
    """RankMe: p_k = σ_k / ‖σ‖₁ + ε, exp(−Σ p_k log p_k)."""
    singular = np.linalg.svd(features, compute_uv=False)
    shares = singular / singular.sum() + 1e-7
    return float(np.exp(-np.sum(shares * np.log(shares))))


def reptrix(features: NDArray[np.float64]) -> tuple[float, float]:
    """`get_rankme` and `get_alpha`, with its range of ranks cut to those that there are."""
    values = np.linalg.svd(features - features.mean(0), compute_uv=False) ** 2
    eigen = values / values.sum()
    shares = eigen + 1e-7
    ranks = np.arange(10, min(100, len(eigen))) + 1
    x = np.stack([-np.log(ranks), np.ones(len(ranks))], axis=1)
    w = 1 / ranks[:, None]
    alpha, _ = np.linalg.solve(x.T @ (x * w), (w * x).T @ np.log(eigen[ranks - 1]))
    return float(np.exp(-np.sum(shares * np.log(shares)))), float(alpha)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data with stories260K and tinystories")
def test_spectra_of_a_trained_model_are_those_of_other_tools(tmp_path: Path) -> None:
    text = (SHARED / "tinystories" / "validation.txt").read_text()
    (tmp_path / "stories.txt").write_text(text[:150_000])
    recipe = Recipe(tokenizer=str(SHARED / "stories260K"), block=BLOCK, seed=0)
    corpus = build_corpus(open_source([str(tmp_path / "stories.txt")]), tmp_path / "corpus", recipe)
    model = AutoModelForCausalLM.from_pretrained(SHARED / "stories260K").eval()
    options = {"tokens": BLOCKS * (BLOCK - 2), "layers": "all", "skip_positions": 0, "quiet": True}
    result = measure(model, corpus, **options)
    assert isinstance(result, Result)
    chosen = np.sort(corpus.train.order(seed=0)[:BLOCKS])
    with torch.no_grad():
        states = model(torch.stack([corpus.train[int(i)] for i in chosen]), output_hidden_states=True).hidden_states
        heard = {str(number): states[number] for number in range(1, len(states) - 1)} | {"last": states[-1]}
    assert len(heard) == 5
    for layer, features in heard.items():
        # The first token of a block is the begin token, which is no sample.
        raw = features[:, 1:-1].reshape(-1, 64).double().numpy()
        rank, alpha = reptrix(raw)
        found = {name: result.row(name, layer=layer).value for name in ("rankme", "rankme_covariance", "alpha_req")}
        # ε adds about 64 · 1e-7 · log (1e7 / 64) to the entropy, which differs by 2e-5 here.
        assert found["rankme"] == pytest.approx(garrido(raw), rel=5e-5), layer
        assert found["rankme_covariance"] == pytest.approx(rank, rel=5e-5), layer
        assert found["alpha_req"] == pytest.approx(alpha, rel=1e-5), layer
    rows = model.get_output_embeddings().weight.detach().double().numpy()
    assert result.row("head_sum").value == pytest.approx(np.linalg.norm(rows.sum(0)) / np.linalg.norm(rows), rel=1e-9)
    assert result.row("head_effective_rank").value == pytest.approx(garrido(rows), rel=5e-5)
