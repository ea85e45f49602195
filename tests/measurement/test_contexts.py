"""Contexts of the last n tokens: found before the model runs, summed up in its one pass, measured as in loops."""

import itertools
import json
import math
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from collapselab.core.contexts import ContextGeometry, context_metrics
from collapselab.core.moments import ClassMoments
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.markov import read_chain
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError
from collapselab.measurement import measure_model as walk
from collapselab.measurement import resume as store
from collapselab.measurement.measure import measure
from collapselab.measurement.sample import ByLayer, Contexts, Sample, context_keys, find_contexts
from collapselab.models.build import build_config, build_model
from collapselab.models.taps import features
from collapselab.records.measurement import Result
from collapselab.records.options import Options
from collapselab.records.outcomes import OUTCOMES
from collapselab.records.tables import ContextRow

Cells = dict[tuple[int, ...], Counter[int]]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """An order-2 chain of eight types in blocks of 32."""
    source = open_source(["markov:order=2,types=8,support=3,sharing=0.5,tokens=6000,validation=1000"])
    return build_corpus(source, tmp_path_factory.mktemp("chain") / "corpus", Recipe(tokenizer="words", block=32))


@pytest.fixture(scope="module")
def small(chain: Corpus) -> nn.Module:
    """Never trained; in float64."""
    config = build_config("gpt-neo", width=12, depth=2, vocabulary=chain.vocabulary, positions=32)
    return build_model(config, seed=0).eval().double()


def samples_of(corpus: Corpus, *, skip: int = 1) -> ByLayer[Sample]:
    def sample(skip: int) -> Sample:
        return Sample(corpus.train, name="train", length=corpus.block, blocks=len(corpus.train), seed=0, skip=skip)

    return ByLayer(sample(0), sample(skip))


def found_in(corpus: Corpus, n: int, *, min_uses: int = 10, skip: int = 1) -> Contexts:
    options = Options(contexts=str(n), min_uses=min_uses)
    return find_contexts(samples_of(corpus, skip=skip), options, corpus.vocabulary)[n]


def counted_by_loop(corpus: Corpus, n: int, *, skip: int = 1) -> Cells:
    """How often what followed each context, one position after the other."""
    split, cells = corpus.train, defaultdict(Counter)
    for block in range(len(split)):
        tokens = split[block].tolist()
        length = len(tokens) if split.lengths is None else int(split.lengths[block])
        for place in range(max(skip, n - 1), length - 1):
            cells[tuple(tokens[place - n + 1 : place + 1])][tokens[place + 1]] += 1
    return cells


def kept_by_loop(cells: Cells, min_uses: int) -> Cells:
    def coverage(following: Counter[int]) -> float:
        return 1 - sum(count == 1 for count in following.values()) / following.total()

    return {
        context: following
        for context, following in cells.items()
        if following.total() >= min_uses and coverage(following) >= 0.95 - 1e-9
    }


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", ["stories", "documents", "chain"])
def test_contexts_are_those_of_a_loop_over_all_positions(
    n: int, kind: str, corpus: Corpus, documents: Corpus, chain: Corpus
) -> None:
    text = {"stories": corpus, "documents": documents, "chain": chain}[kind]
    min_uses = 10 if kind == "chain" else 4
    cells = counted_by_loop(text, n)
    kept = kept_by_loop(cells, min_uses)
    if not kept:
        pytest.skip("returns where this text has such contexts")
    found = found_in(text, n, min_uses=min_uses)
    rare = sum(following.total() < min_uses for following in cells.values())
    assert (found.seen, found.rare, found.uncertain) == (len(cells), rare, len(cells) - rare - len(kept))
    by_key = {_key(context, text.vocabulary): following for context, following in kept.items()}
    assert sorted(by_key) == found.keys.tolist()
    table = found.table
    for cell in range(table.cells):
        following = by_key[int(found.keys[int(table.context[cell])])]
        assert following[int(table.token[cell])] == int(table.count[cell])
    assert table.cells == sum(map(len, kept.values()))
    once = sum(count == 1 for following in kept.values() for count in following.values())
    assert table.coverage == pytest.approx(1 - once / table.tokens)


def _key(context: tuple[int, ...], vocabulary: int) -> int:
    ids = np.array([[*context, 0]])
    return int(context_keys(ids, len(context), vocabulary)[0, -1])


def test_some_of_the_cases_above_left_contexts_out_by_each_rule(corpus: Corpus, chain: Corpus) -> None:
    assert found_in(corpus, 1, min_uses=4).uncertain > 0
    assert found_in(corpus, 1, min_uses=4).rare > 0
    assert len(found_in(chain, 2).keys) > 20


def test_numbers_of_contexts_are_exact_while_they_fit_and_hashes_beyond() -> None:
    ids = np.array([list(token) + [0] for token in itertools.product(range(5), repeat=4)])
    for vocabulary in (5, 2**16, 2**20):
        keys = context_keys(ids, 4, vocabulary)[:, -1]
        assert len(set(keys.tolist())) == 625, vocabulary
    one, other = context_keys(np.array([[1, 2, 0], [2, 1, 0]]), 2, 2**40)[:, -1]
    assert one != other, "the order counts"


def test_cells_of_blocks_are_those_of_the_loop(chain: Corpus) -> None:
    found = found_in(chain, 2)
    kept = {_key(context, chain.vocabulary): c for context, c in kept_by_loop(counted_by_loop(chain, 2), 10).items()}
    blocks = chain.train.read(np.arange(4))
    cells = found.cells(blocks.ids, blocks.labels)
    inside = 0
    for row, place in itertools.product(range(4), range(31)):
        cell = int(cells[row, place])
        key = _key(tuple(blocks.ids[row, max(0, place - 1) : place + 1].tolist()), chain.vocabulary)
        if place < 1 or key not in kept:
            assert cell == found.table.cells
            continue
        inside += 1
        assert int(found.keys[found.table.context[cell]]) == key
        assert int(found.table.token[cell]) == int(blocks.ids[row, place + 1])
    assert inside > 60


# The measurement -------------------------------------------------------------------------------------------------------


def oracle(model: nn.Module, corpus: Corpus, n: int) -> dict[str, float | None]:
    """All metrics of the last layer from all features at once, and a context table made by loops."""
    kept = kept_by_loop(counted_by_loop(corpus, n, skip=0), 10)
    rows, cells, states = [], [], []
    with torch.no_grad():
        for block in range(len(corpus.train)):
            tokens = corpus.train[block]
            states.append(features(model, tokens[None])[0])
            rows.append(tokens.tolist())
    found = found_in(corpus, n, skip=0)
    number = {
        (int(found.keys[c]), int(t)): i
        for i, (c, t) in enumerate(zip(found.table.context, found.table.token, strict=True))
    }
    moments = ClassMoments.empty(found.table.cells, states[0].shape[1])
    chosen = []
    for tokens, state in zip(rows, states, strict=True):
        for place in range(n - 1, len(tokens) - 1):
            context = tuple(tokens[place - n + 1 : place + 1])
            if context in kept:
                chosen.append(state[place])
                cells.append(number[_key(context, corpus.vocabulary), tokens[place + 1]])
    moments.update(torch.stack(chosen), torch.tensor(cells))
    return {name: m.value for name, m in context_metrics(ContextGeometry(moments, found.table)).items()}


def test_the_table_is_what_all_features_at_once_give(small: nn.Module, chain: Corpus) -> None:
    result = measure(small, chain, contexts=(1, 2), quiet=True)
    assert isinstance(result, Result)
    frame = result.frame("contexts").set_index(["n", "metric"])
    assert list(frame.columns) == [
        "run", "checkpoint", "layer", "value", "null", "contexts", "tokens", "coverage", "left_out", "version", "why"
    ]  # fmt: skip
    for n in (1, 2):
        expected = oracle(small, chain, n)
        assert len(expected) == 6
        for metric, value in expected.items():
            assert frame.loc[(n, metric), "value"] == pytest.approx(value, rel=1e-9), (n, metric)


def test_the_entropy_gap_is_cross_entropy_less_entropy_where_all_tokens_are_scored(chain: Corpus) -> None:
    source = open_source(["markov:order=1,types=6,support=3,sharing=0.5,tokens=1600,validation=500"])
    short = build_corpus(source, chain.path.parent / "short", Recipe(tokenizer="words", block=32))
    model = build_model(build_config("gpt-neo", width=12, depth=1, vocabulary=7, positions=32), seed=0).eval().double()
    result = measure(model, short, contexts="2", quiet=True)
    assert isinstance(result, Result)
    (row,) = [row for row in result.tables["contexts"] if row.metric == "entropy_gap"]
    kept = kept_by_loop(counted_by_loop(short, 2), 10)
    total = count = 0.0
    with torch.no_grad():
        for block in range(len(short.train)):
            tokens = short.train[block]
            scores = model(tokens[None]).logits[0].double().log_softmax(1)
            for place in range(1, 31):
                context = tuple(tokens[place - 1 : place + 1].tolist())
                if context in kept:
                    total -= float(scores[place, tokens[place + 1]])
                    count += 1
    entropy = -sum(c * math.log(c / f.total()) for f in kept.values() for c in f.values()) / count
    assert row.tokens == count
    assert row.value == pytest.approx(total / count - entropy, rel=1e-9)


def test_layers_have_the_same_tokens_and_no_metric_of_the_output_layer_below_the_last(
    small: nn.Module, chain: Corpus
) -> None:
    result = measure(small, chain, contexts="1,2", layers="all", quiet=True)
    assert isinstance(result, Result)
    rows: list[ContextRow] = result.tables["contexts"]
    assert {row.layer for row in rows} == {"1", "2", "last"}
    for n in (1, 2):
        assert len({row.tokens for row in rows if row.n == n and row.metric == "context_within"}) == 1
    assert {row.metric for row in rows if row.layer == "1"} == {row.metric for row in rows} - {
        "entropy_gap",
        "in_support_slope",
        "in_support_r2",
    }


def test_the_split_of_each_token_joins_the_table_of_classes_and_adds_up(small: nn.Module, chain: Corpus) -> None:
    result = measure(small, chain, contexts="2", classes=True, quiet=True)
    assert isinstance(result, Result)
    tokens, classes = result.frame("token_contexts"), result.frame("classes")
    joined = tokens.merge(classes, on=["run", "checkpoint", "split", "layer", "token"], suffixes=("", "_all"))
    assert len(joined) == len(tokens) == 8
    assert (joined["count"] <= joined["count_all"]).all()
    assert np.allclose(joined["within_context"] + joined["between_contexts"], joined["variance"], rtol=1e-12)
    rows = {row.metric: row for row in result.tables["contexts"]}
    within, between = (rows[f"token_{name}"].value for name in ("within_context", "between_contexts"))
    assert within is not None
    assert between is not None
    totals = [float((joined["count"] * joined[name]).sum()) for name in ("within_context", "between_contexts")]
    assert totals[0] / totals[1] == pytest.approx(within / between, rel=1e-9)


def test_contexts_change_no_other_number_and_run_the_model_no_more_often(
    small: nn.Module, chain: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [0]
    real = walk.features

    def counted(*args: Any, **inputs: Any) -> Tensor:
        calls[0] += 1
        return real(*args, **inputs)

    monkeypatch.setattr(walk, "features", counted)
    plain = measure(small, chain, quiet=True)
    once, calls[0] = calls[0], 0
    assert measure(small, chain, contexts="1,2,3", quiet=True).rows == plain.rows
    assert calls[0] == once > 1


def test_without_contexts_nothing_is_added_and_the_identity_is_that_of_before(small: nn.Module, chain: Corpus) -> None:
    result = measure(small, chain, quiet=True)
    assert isinstance(result, Result)
    assert "contexts" not in result.tables
    assert {"contexts", "min_uses"}.isdisjoint(result.facts["options"])
    assert Options(contexts=" 2,1,2").facts()["contexts"] == "1,2"


def test_the_tables_come_back_from_disk(small: nn.Module, chain: Corpus, tmp_path: Path) -> None:
    result = measure(small, chain, contexts=(1, 2), classes=True, quiet=True, out=tmp_path / "r.json")
    loaded = Result.load(tmp_path / "r.json")
    assert isinstance(result, Result)
    assert loaded.tables["contexts"] == result.tables["contexts"]
    assert loaded.frame("token_contexts").equals(result.frame("token_contexts"))


@pytest.mark.parametrize("batches", [2, 9])
def test_an_interrupted_measurement_ends_with_the_same_bits(
    small: nn.Module, chain: Corpus, batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(store, "SAVE_FACTOR", 0)
    options: dict[str, Any] = {"contexts": "1,2", "batch": 16, "quiet": True, "layers": "last"}
    whole = measure(small, chain, **options)
    with monkeypatch.context() as patch:
        stop_after(batches, patch)
        with pytest.raises(RuntimeError, match="killed"):
            measure(small, chain, state=tmp_path, **options)
    result = measure(small, chain, state=tmp_path, **options)
    assert isinstance(result, Result)
    assert isinstance(whole, Result)
    assert result.tables["contexts"] == whole.tables["contexts"]
    assert result.rows == whole.rows


def stop_after(batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real, ran = walk.features, 0

    def stopping(*args: Any, **inputs: Any) -> Tensor:
        nonlocal ran
        if ran == batches:
            raise RuntimeError("killed")
        ran += 1
        return real(*args, **inputs)

    monkeypatch.setattr(walk, "features", stopping)


@pytest.mark.slow
def test_two_processes_agree_with_one(chain: Corpus, tmp_path: Path) -> None:
    options = {"contexts": "1,2", "batch": 5, "layers": "all", "vocabulary": chain.vocabulary}
    jobs = [("one", 1, options), ("two", 2, options), ("resampled", 2, options | {"bootstrap": 2})]
    script = Path(__file__).parent / "worlds.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path, chain.path, json.dumps(jobs)], capture_output=True, text=True, timeout=240
    )
    one, two, resampled = (
        {(row["layer"], row["n"], row["metric"]): row for row in json.loads(path.read_text())["tables"]["contexts"]}
        for path in (tmp_path / f"{name}.json" for name, _, _ in jobs)
    )
    assert one.keys() == two.keys(), done.stderr
    assert len(one) == 2 * 9 + 2 * 6
    for key, row in one.items():
        for name in ("value", "null"):
            assert two[key][name] == pytest.approx(row[name], rel=1e-9, abs=1e-12), key
        if key in resampled:
            assert resampled[key]["value"] == pytest.approx(row["value"], rel=1e-9, abs=1e-12), key


@pytest.mark.slow
def test_a_process_that_is_killed_with_every_option_on_goes_on_to_the_same_bits(chain: Corpus, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "contexts": "1,2", "classes": True, "deciders": True, "outcomes": "all", "push": "0,0.1", "layers": "all",
        "bins": 2, "tokens": 1200, "batch": 4, "vocabulary": chain.vocabulary,
    }  # fmt: skip
    jobs = [("whole", 2, options)]
    for batches in (2, 7):  # in the training pass, and in one over validation
        state = {"state": str(tmp_path / f"state-{batches}")}
        jobs += [(f"killed {batches}", 2, options | state | {"die_at": batches})]
        jobs += [(f"going on {batches}", 2, options | state)]
    script = Path(__file__).parent / "worlds.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path, chain.path, json.dumps(jobs)], capture_output=True, text=True, timeout=240
    )
    assert -signal.SIGKILL in json.loads((tmp_path / "killed 2.status").read_text()), done.stderr
    assert -signal.SIGKILL in json.loads((tmp_path / "killed 7.status").read_text()), done.stderr
    whole = json.loads((tmp_path / "whole.json").read_text())
    assert set(whole["tables"]) == {"push", "deciders", "classes", "contexts", "token_contexts"}
    assert all(whole["tables"].values())
    assert set(whole["facts"]["outcomes"]) == set(OUTCOMES)
    for batches in (2, 7):
        result = json.loads((tmp_path / f"going on {batches}.json").read_text())
        for document in (whole, result):
            document["facts"].pop("seconds", None)
            document.pop("checksum", None)  # of the seconds too
        assert result == whole


def test_an_order_2_source_has_collapsed_at_2_and_not_at_1(chain: Corpus) -> None:
    """Features that are what the chain says about the future: known answers at every length."""
    known = read_chain(chain.path)
    chances = np.zeros((known.settings.contexts, 8))
    np.put_along_axis(chances, known.successors[known.classes], known.chances, axis=1)
    within = {}
    for n in (1, 2, 3):
        found = found_in(chain, n)
        moments = ClassMoments.empty(found.rows, 8)
        for start in range(0, len(chain.train), 16):
            blocks = chain.train.read(np.arange(start, min(start + 16, len(chain.train))))
            ids, cells = blocks.ids, found.cells(blocks.ids, blocks.labels)
            state = ids[:, :-1].clone()
            state[:, 1:] += 8 * ids[:, :-2]
            moments.update(torch.from_numpy(chances[state.reshape(-1)]), cells.reshape(-1))
        metrics = context_metrics(ContextGeometry(moments, found.table))
        within[n] = metrics["context_within"].value
        if n == 2:
            assert metrics["token_within_context"].value == pytest.approx(0, abs=1e-12)
            assert metrics["token_between_contexts"].value is not None
            assert metrics["token_between_contexts"].value > 0.2, "the floor of within-token variance"
            assert metrics["context_cka"].value is not None
            assert metrics["context_cka"].value > 0.9
    assert within[2] == pytest.approx(0, abs=1e-12)
    assert within[3] == pytest.approx(0, abs=1e-12)
    assert within[1] is not None
    assert within[1] > 0.3


# What is refused -------------------------------------------------------------------------------------------------------


def test_a_context_longer_than_a_block_is_refused(small: nn.Module, chain: Corpus) -> None:
    with pytest.raises(ConfigError, match="contexts: 32 tokens back, but blocks have 32 tokens.* At most 31"):
        measure(small, chain, contexts=(1, 32), quiet=True)


def test_no_context_with_enough_uses_says_how_many_tokens_it_would_take(small: nn.Module, chain: Corpus) -> None:
    most = max(following.total() for following in counted_by_loop(chain, 20).values())
    tokens = len(chain.train) * (chain.block - 1)  # the sample's, of which only a part has 20 tokens before it
    with pytest.raises(ConfigError, match=f"the most frequent has {most} in {tokens:,} tokens") as caught:
        measure(small, chain, contexts="20", min_uses=1000, quiet=True)
    assert f"A sample of about {math.ceil(tokens * 1000 / most):,} tokens would be needed" in str(caught.value)


def test_a_length_without_contexts_beside_others_has_the_reason_in_its_rows(small: nn.Module, chain: Corpus) -> None:
    result = measure(small, chain, contexts="2,25", quiet=True)
    assert isinstance(result, Result)
    rows = [row for row in result.tables["contexts"] if row.n == 25]
    assert len(rows) == 9
    for row in rows:
        assert (row.value, row.contexts, row.tokens, row.coverage) == (None, 0, 0, None)
        assert "no context of the last 25 tokens has 10 uses" in str(row.why)


@pytest.mark.parametrize("given", ["0", "1,,2", "", "two", "65", "-1", (0,), (1.5,), "1;2"])
def test_lengths_that_are_none_are_refused(given: Any, small: nn.Module, chain: Corpus) -> None:
    with pytest.raises(ConfigError, match="contexts: .*numbers of tokens from 1 to 64"):
        measure(small, chain, contexts=given, quiet=True)


def test_contexts_are_not_spread_over_processes() -> None:
    with pytest.raises(ConfigError, match="contexts and shard_classes"):
        Options(contexts="1", shard_classes=True)
    with pytest.raises(ConfigError, match="min_uses"):
        Options(contexts="1", min_uses=0)


def test_a_context_nobody_else_shares_is_told_apart_from_one_that_is_rare(corpus: Corpus) -> None:
    found = found_in(corpus, 1, min_uses=4)
    assert found.why is None
    options = Options(contexts="6", min_uses=2)
    rare: Callable[[], object] = lambda: find_contexts(samples_of(corpus), options, corpus.vocabulary)  # noqa: E731
    cells = counted_by_loop(corpus, 6)
    if not kept_by_loop(cells, 2):
        with pytest.raises(ConfigError, match="seen once|uses"):
            rare()
