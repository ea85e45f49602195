"""The numbers: against features gathered naively and the definitions, and what must leave them unchanged."""

import itertools
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import Gemma2Config, Gemma2ForCausalLM, OPTConfig, OPTForCausalLM

import oracles
from collapselab.core.catalogue import METRICS, Need
from collapselab.core.decisions import LinearClassifier, TopTwo
from collapselab.corpus.blocks import Corpus, Split
from collapselab.measurement.collector import needing
from collapselab.measurement.collectors.decisions import NearestCentres
from collapselab.measurement.collectors.moments import of_the_head
from collapselab.measurement.collectors.scores import FirstFeatures
from collapselab.measurement.measure import measure
from collapselab.measurement.model import MeasuredModel
from collapselab.measurement.sample import Sample
from collapselab.models.build import build_config, build_model
from collapselab.records.measurement import Result

OF_COVARIANCE = {id for id, metric in METRICS.items() if Need.COVARIANCE in metric.needs}


def measured(model: nn.Module, corpus: Corpus, **options: Any) -> Result:
    result = measure(model, corpus, quiet=True, **options)
    assert isinstance(result, Result)
    return result


def values(result: Result, *, split: str = "train", layer: str = "last", bin: str = "all") -> dict[str, float | None]:
    rows = [row for row in result.rows if (row.split, row.layer, row.bin) == (split, layer, bin)]
    return {row.metric: row.value for row in rows}


@torch.no_grad()
def naive(model: Any, split: Split, blocks: int, *, layer: int = -1) -> tuple[Any, Any]:
    """Features through the library's own hidden states, block after block, and their next tokens."""
    features, labels = [], []
    for ids in (split[i] for i in range(blocks)):
        features.append(model(ids[None], output_hidden_states=True).hidden_states[layer][0, :-1])
        labels.append(ids[1:])
    return torch.cat(features).double().numpy(), torch.cat(labels).numpy()


@pytest.mark.slow
def test_on_2000_tokens_every_number_is_that_of_the_definition(model: nn.Module, corpus: Corpus) -> None:
    # Both sides run the model in float64, in batches of different shape; pair values are promised to 1e-6.
    result = measured(model, corpus, tokens=2000, batch=7)
    blocks = 65  # of 31 labels each
    assert result.facts["splits"]["train"]["blocks"] == blocks
    chosen = np.sort(corpus.train.order(seed=0)[:blocks])
    judged = np.sort(corpus.validation.order(seed=0)[:blocks])
    features, labels = zip(*(naive(model, _only(corpus.train, i), 1) for i in chosen), strict=True)
    later, next_tokens = zip(*(naive(model, _only(corpus.validation, i), 1) for i in judged), strict=True)
    weight = model.get_output_embeddings().weight.detach().double().numpy()  # type: ignore[operator]
    expected = oracles.catalogue(
        np.concatenate(features),
        np.concatenate(labels),
        weight=weight,
        validation=(np.concatenate(later), np.concatenate(next_tokens)),
    )
    found = values(result)
    assert set(found) == set(expected) | {"alpha_req"} == set(METRICS)  # which 12 dimensions are too few for
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-6, abs=1e-12), name


class _only:
    """One block of a split, standing for the split."""

    def __init__(self, split: Split, block: int) -> None:
        self.split, self.block = split, int(block)

    def __getitem__(self, _: int) -> Tensor:
        return self.split[self.block]


def test_every_layer_is_that_of_the_hidden_states_and_the_last_is_after_the_final_norm(
    model: nn.Module, corpus: Corpus
) -> None:
    result = measured(model, corpus, layers="all", tokens=400, skip_positions=0)
    assert {row.layer for row in result.rows} == {"1", "2", "last"}
    chosen = np.sort(corpus.train.order(seed=0)[:13])
    parts = [naive(model, _only(corpus.train, i), 1, layer=1) for i in chosen]
    weight = model.get_output_embeddings().weight.detach().double().numpy()  # type: ignore[operator]
    expected = oracles.catalogue(
        np.concatenate([features for features, _ in parts]),
        np.concatenate([labels for _, labels in parts]),
        weight=weight,
    )
    found = values(result, layer="1")
    assert set(found) == needing(Need.MEANS) | needing(Need.DECISIONS)
    for name in needing(Need.MEANS) - OF_COVARIANCE - {"alpha_req"}:
        assert found[name] == pytest.approx(expected[name], rel=1e-6, abs=1e-12), name
    why = next(row.why for row in result.rows if row.layer == "1" and row.metric == "scatter_pinv")
    assert why == "the covariance within classes is collected at the last layer only."
    assert values(result, layer="last") == values(measured(model, corpus, tokens=400))


@pytest.mark.parametrize(("seconds", "is_said"), [(30, True), (0.01, False)])
def test_a_long_measurement_says_how_long_after_its_first_batch(
    seconds: float, is_said: bool, model: nn.Module, corpus: Corpus, monkeypatch: Any, capsys: Any
) -> None:
    clock = SimpleNamespace(perf_counter=partial(next, itertools.count(0, seconds)))
    monkeypatch.setattr("collapselab.measurement.measure_model.time", clock)
    measure(model, corpus=corpus, tokens=500, batch=2)
    assert ("minutes for" in capsys.readouterr().err) is is_said


def test_scales_are_fitted_to_features_that_the_training_pass_kept(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_model(build_config("gpt-neo", width=12, depth=1, vocabulary=320, positions=32), seed=0).eval()
    real, runs = MeasuredModel.sampled_features, list[int]()

    def counted(*args: Any, **inputs: Any) -> Any:
        runs.append(1)
        return real(*args, **inputs)

    monkeypatch.setattr(MeasuredModel, "sampled_features", counted)
    options: dict[str, Any] = {"tokens": 1000, "batch": 7, "push": "0.5", "outcomes": "ece,loss_after_temperature"}
    kept = measured(model, corpus, **options)
    assert not runs
    monkeypatch.setattr(FirstFeatures, "update", lambda *_: None)  # as where another process had the training pass
    again = measured(model, corpus, **options)
    assert runs
    assert (again.rows, again.tables) == (kept.rows, kept.tables)
    assert again.facts["outcomes"] == kept.facts["outcomes"]


def test_scores_are_those_of_the_logits(model: nn.Module, corpus: Corpus) -> None:
    result = measured(model, corpus, tokens=300, train_loss=True)
    for split in ("train", "validation"):
        chosen = np.sort(corpus.splits[split].order(seed=0)[:10])
        ids = torch.stack([corpus.splits[split][int(i)] for i in chosen])
        with torch.no_grad():
            logits = model(ids).logits[:, :-1].reshape(-1, 320)
        labels = ids[:, 1:].reshape(-1)
        facts = result.facts["splits"][split]
        assert facts["loss"] == pytest.approx(float(nn.functional.cross_entropy(logits, labels)), rel=1e-5)
        assert facts["accuracy"] == pytest.approx(float((logits.argmax(1) == labels).float().mean()), rel=1e-6)
    assert "loss" not in measured(model, corpus, tokens=300).facts["splits"]["train"]


def test_rows_stand_for_every_split_and_metric_with_counts(model: nn.Module, corpus: Corpus) -> None:
    result = measured(model, corpus)
    assert set(values(result)) == set(METRICS)
    assert set(values(result, split="validation")) == needing(Need.MEANS) | {"curvature", "curvature_relative"}
    cdnv, agreement = result.row("cdnv"), result.row("agreement")
    assert cdnv.tokens == result.facts["splits"]["train"]["tokens"] == int(corpus.train.counts.sum())
    assert cdnv.classes == int((corpus.train.counts > 0).sum())
    left_out = int(corpus.validation.counts[corpus.train.counts == 0].sum())
    assert (agreement.left_out, agreement.tokens) == (left_out, int(corpus.validation.counts.sum()) - left_out)
    assert list(result.frame()["metric"]) == [row.metric for row in result.rows]


@pytest.mark.parametrize("batch", [1, 5, "auto"])
def test_the_cut_into_batches_changes_nothing_but_rounding(model: nn.Module, corpus: Corpus, batch: Any) -> None:
    reference, found = (measured(model, corpus, tokens=600, batch=size) for size in (3, batch))
    for one, other in zip(reference.rows, found.rows, strict=True):
        assert (one.value is None) == (other.value is None) == (one.metric == "alpha_req")
        if one.value is None:
            continue
        assert other.value == pytest.approx(one.value, rel=1e-9, abs=1e-12), one.metric
        assert other.null == pytest.approx(one.null, rel=1e-9, abs=1e-12), one.metric


DRAWS = 8

# The null ------------------------------------------------------------------------------------------------------------


def test_the_null_is_one_permutation_of_all_labels_whatever_the_batches(corpus: Corpus) -> None:
    sample = Sample(corpus.train, name="training split", length=20, blocks=40, seed=3)
    whole = sample.null_labels(0, 40)
    assert torch.equal(torch.cat([sample.null_labels(i, i + 8) for i in range(0, 40, 8)]), whole)
    labels = sample.read(0, 40).ids[:, 1:]
    assert torch.equal(whole.flatten().sort().values, labels.flatten().sort().values)
    assert not torch.equal(whole, Sample(corpus.train, name="", length=20, blocks=40, seed=4).null_labels(0, 40))


def test_the_null_strews_the_labels_of_a_block_over_all_blocks(corpus: Corpus) -> None:
    sample = Sample(corpus.train, name="training split", length=32, blocks=len(corpus.train), seed=0)
    # Tag every label with its block: what the null reads must come from many of them, and rarely from its own.
    sources = (np.arange(5)[:, None] + sample._shifts) % len(sample)
    assert all(len(set(row)) > 20 for row in sources)
    assert (sources == np.arange(5)[:, None]).mean() < 0.1
    assert sorted(sample._columns) == list(range(1, 32))


def test_labels_that_tell_nothing_have_the_null_s_values(corpus: Corpus) -> None:
    """A model whose features do not depend on the next token is its own null but for noise."""

    class Noise(nn.Module):
        """Features drawn at random for each batch, the same whenever it comes."""

        def __init__(self, seed: int) -> None:
            super().__init__()
            self.seed, self.lm_head = seed, nn.Linear(8, 320, bias=False)
            nn.init.normal_(self.lm_head.weight, generator=torch.Generator().manual_seed(seed))
            self.config = type("C", (), {"to_diff_dict": dict})()

        def get_output_embeddings(self) -> nn.Module:
            return self.lm_head

        def forward(self, input_ids: Tensor, **_: Any) -> Any:
            generator = torch.Generator().manual_seed(1000 * self.seed + int(input_ids[:, :2].sum()))
            logits = self.lm_head(torch.randn(*input_ids.shape, 8, generator=generator))
            return type("Output", (), {"logits": logits})

    results = [measured(Noise(seed), corpus, min_count=20) for seed in range(DRAWS)]  # rare classes are noise alone
    for metric in ("cdnv_log", "scatter_ratio", "cosine_std", "etf_error"):
        pairs = [(result.row(metric).value, result.row(metric).null) for result in results]
        shares = torch.tensor([value / null - 1 for value, null in pairs if value and null], dtype=torch.float64)
        assert len(shares) == DRAWS
        error = float(shares.std()) / DRAWS**0.5
        assert abs(float(shares.mean())) < 4 * error, metric
        assert error < 0.05, f"{metric}: too noisy to show anything"
    agreements = [(row.value, row.null) for row in (result.row("agreement") for result in results)]
    differences = [value - null for value, null in agreements if value is not None and null is not None]
    error = float(np.std(differences, ddof=1)) / DRAWS**0.5
    assert len(differences) == DRAWS
    assert abs(float(np.mean(differences))) < 4 * error < 0.02


def test_the_output_layer_s_own_metrics_are_their_null(model: nn.Module, corpus: Corpus) -> None:
    result = measured(model, corpus, tokens=300)
    assert all(result.row(metric).null == result.row(metric).value for metric in of_the_head())
    assert all(row.null is None for row in measured(model, corpus, tokens=300, null=False).rows)


# Which classes -------------------------------------------------------------------------------------------------------


def test_min_count_is_that_of_the_definition_also_for_the_pooled_covariance(model: nn.Module, corpus: Corpus) -> None:
    result = measured(model, corpus, tokens=1000, min_count=4)
    chosen = np.sort(corpus.train.order(seed=0)[:33])
    parts = [naive(model, _only(corpus.train, i), 1) for i in chosen]
    weight = model.get_output_embeddings().weight.detach().double().numpy()  # type: ignore[operator]
    expected = oracles.catalogue(
        np.concatenate([f for f, _ in parts]), np.concatenate([y for _, y in parts]), weight=weight, min_count=4
    )
    for metric in ("cdnv", "scatter_pinv", "etf_error", "duality_cos_mean"):
        assert result.row(metric).value == pytest.approx(expected[metric], rel=1e-6), metric
    assert all(row.min_count == 4 for row in result.rows)
    assert result.row("scatter_pinv").null is not None


def test_bins_part_the_kept_classes_by_their_counts(model: nn.Module, corpus: Corpus) -> None:
    result = measured(model, corpus, bins=4)
    bins = [row.bin for row in result.rows if row.metric == "cdnv" and row.split == "train" and row.bin != "all"]
    bounds = [tuple(map(int, bin.split("-"))) for bin in bins]
    counts = corpus.train.counts
    assert bounds[0][0] == int(counts[counts > 0].min())
    assert bounds[-1][1] == int(counts.max())
    assert all(high + 1 == low for (_, high), (low, _) in itertools.pairwise(bounds))
    for (low, high), bin in zip(bounds, bins, strict=True):
        inside = (counts >= low) & (counts <= high)
        assert result.row("cdnv", bin=bin).classes == int(inside.sum())
        agreement = result.row("agreement", bin=bin)
        assert agreement.tokens == int(corpus.validation.counts[inside].sum())
    assert sum(result.row("cdnv", bin=bin).tokens or 0 for bin in bins) == result.row("cdnv").tokens
    assert not [row for row in result.rows if row.split == "validation" and row.bin != "all"]


def test_a_bin_of_one_class_says_why_it_has_no_pairs(model: nn.Module, corpus: Corpus) -> None:
    result = measured(model, corpus, bins=60)
    lonely = [row for row in result.rows if row.metric == "cdnv" and row.classes == 1]
    assert lonely
    assert all(row.value is None and row.why == "1 kept class; at least 2 are needed." for row in lonely)
    empty = [row for row in result.rows if row.metric == "cdnv" and row.classes == 0]
    assert all(row.why == "0 kept classes; at least 1 are needed." for row in empty)


def test_a_sample_is_seeded_and_the_blocks_of_another_seed_differ(model: nn.Module, corpus: Corpus) -> None:
    one, same, other = (measured(model, corpus, tokens=200, seed=seed) for seed in (1, 1, 2))
    assert one.rows == same.rows
    assert one.row("cdnv").value != other.row("cdnv").value


# Models that are different ---------------------------------------------------------------------------------------------


def test_longer_blocks_than_the_context_are_cut_and_counted(corpus: Corpus) -> None:
    from collapselab.models.build import build_config, build_model

    short = build_model(build_config("gpt-neo", width=12, depth=1, vocabulary=320, positions=16), seed=0)
    result = measured(short, corpus)
    facts = result.facts["splits"]["train"]
    assert facts["blocks_cut_off"] == facts["blocks"] == len(corpus.train)
    assert facts["tokens"] == len(corpus.train) * 15
    counted = sum(int((corpus.train[i][1:16] == 5).sum()) for i in range(len(corpus.train)))
    assert int(Sample(corpus.train, name="", length=16, blocks=len(corpus.train), seed=0).counts(320)[5]) == counted


def test_a_layer_of_another_size_than_the_output_layer_is_measured_without_it(corpus: Corpus) -> None:
    config = OPTConfig(
        vocab_size=320, hidden_size=16, word_embed_proj_dim=8, num_hidden_layers=1, ffn_dim=16,
        num_attention_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    torch.manual_seed(0)
    result = measured(OPTForCausalLM(config).eval(), corpus, layers="all", tokens=300)
    row = result.row("duality_cos_mean", layer="1")
    assert row.why == "layer 1 has 16 dimensions, unlike the output layer."
    assert result.row("agreement", layer="1").value is not None
    assert result.row("duality_cos_mean").value is not None


def test_soft_capped_logits_score_with_the_cap_and_decide_without_it(corpus: Corpus) -> None:
    config = Gemma2Config(
        vocab_size=320, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=4, max_position_embeddings=32, final_logit_softcapping=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    capped = Gemma2ForCausalLM(config).eval()
    result = measured(capped, corpus, tokens=300)
    chosen = np.sort(corpus.validation.order(seed=0)[:10])
    ids = torch.stack([corpus.validation[int(i)] for i in chosen])
    with torch.no_grad():
        logits = capped(ids).logits[:, :-1].reshape(-1, 320)
    loss = float(nn.functional.cross_entropy(logits, ids[:, 1:].reshape(-1)))
    assert result.facts["splits"]["validation"]["loss"] == pytest.approx(loss, rel=1e-5)
    kept = torch.from_numpy(np.bincount(np.concatenate(
        [corpus.train[int(i)][1:].numpy() for i in np.sort(corpus.train.order(seed=0)[:10])]), minlength=320) > 0)  # fmt: skip
    labels = ids[:, 1:].reshape(-1)
    judged = kept[labels]
    right = (logits.masked_fill(~kept, -torch.inf).argmax(1) == labels)[judged]
    assert result.row("model_accuracy").value == pytest.approx(float(right.double().mean()), abs=1e-12)


def test_a_loaded_model_is_left_as_it_was(model: nn.Module, corpus: Corpus) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.train()
    torch.manual_seed(7)
    expected = torch.get_rng_state()
    measured(model, corpus, tokens=100)
    assert model.training
    model.eval()
    assert torch.equal(torch.get_rng_state(), expected)
    assert all(parameter.grad is None for parameter in model.parameters())
    for name, tensor in model.state_dict().items():
        assert_close(tensor, before[name], rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["blocks", "documents"])
@pytest.mark.parametrize("options", [{}, {"layers": "all", "skip_positions": 3, "deciders": True}], ids=["last", "all"])
def test_decisions_from_the_logits_are_those_of_the_output_layer_run_again(
    kind: str, options: Any, corpus: Corpus, documents: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = {"blocks": corpus, "documents": documents}[kind]
    model = build_model(build_config("gpt-neo", width=8, depth=1, vocabulary=320, positions=32), seed=0)
    real, again, asked = LinearClassifier.sure_choices, [], []

    def counted(self: LinearClassifier, top: TopTwo, features: Tensor, classes: Tensor, **later: Any) -> Tensor:
        asked.append(len(features))
        again.append(int((classes[top.best] < 0).sum()))
        return real(self, top, features, classes, **later)

    monkeypatch.setattr(LinearClassifier, "sure_choices", counted)
    once = measured(model, text, tokens=300, **options)
    assert sum(asked) == once.facts["splits"]["validation"]["tokens"]
    assert 0 < sum(again) < sum(asked), "so that some tokens are decided again"
    asked.clear()
    monkeypatch.setattr(NearestCentres, "_of_the_head", lambda self, features, _: self.head.last.choices(features))
    twice = measured(model, text, tokens=300, **options)
    assert not asked
    assert once.rows == twice.rows
    assert once.tables == twice.tables
