"""`--deciders`: on how many tokens output layer, nearest centres and logit lens choose alike, counted token by token."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from collapselab.corpus.blocks import Corpus
from collapselab.measurement.measure import measure
from collapselab.records.measurement import Result
from collapselab.records.options import Options

BLOCKS = 13


@pytest.fixture(scope="module")
def result(model: Any, corpus: Corpus) -> Result:
    measured = measure(model, corpus, layers="all", deciders=True, tokens=400, batch=3, quiet=True)
    assert isinstance(measured, Result)
    return measured


def shares(result: Result) -> dict[tuple[str, str], tuple[int, int]]:
    return {(row.first, row.second): (row.agreed, row.tokens) for row in result.tables["deciders"]}


@torch.no_grad()
def states(model: Any, corpus: Corpus, split: str) -> tuple[dict[str, Tensor], Tensor]:
    """The outputs of both blocks and of the final norm by the library itself, and the next tokens, block by block."""
    chosen = np.sort(corpus.splits[split].order(seed=0)[:BLOCKS])
    ids = torch.stack([corpus.splits[split][int(block)] for block in chosen])
    outputs: dict[str, Tensor] = {}
    hooks = [
        block.register_forward_hook(lambda _, __, out, name=name: outputs.__setitem__(name, out[0] if isinstance(out, tuple) else out))
        for name, block in (("1", model.transformer.h[0]), ("2", model.transformer.h[1]), ("last", model.transformer.ln_f))
    ]  # fmt: skip
    model(ids)
    for hook in hooks:
        hook.remove()
    return {name: out[:, :-1] for name, out in outputs.items()}, ids[:, 1:]


def by_loops(model: Any, corpus: Corpus) -> dict[tuple[str, str], tuple[int, int]]:
    train, labels = states(model, corpus, "train")
    later, following = states(model, corpus, "validation")
    weight = model.get_output_embeddings().weight.detach()
    first = {"1": 1, "2": 1, "last": 0}  # below the last layer, the first position of a block is no sample
    means = {}
    for name, skip in first.items():
        seen = labels[:, skip:].reshape(-1)
        flat = train[name][:, skip:].reshape(-1, weight.shape[1])
        means[name] = {c: flat[seen == c].mean(0) for c in sorted(set(seen.tolist()))}
    candidates = list(means["1"])
    chosen: dict[str, list[int]] = {}

    def note(name: str, choice: int) -> None:
        chosen.setdefault(name, []).append(choice)

    for block, position in itertools.product(range(BLOCKS), range(1, labels.shape[1])):
        if int(following[block, position]) not in candidates:
            continue
        note("token", int(following[block, position]))
        at = {name: later[name][block, position] for name in first}
        note("head", max(candidates, key=lambda c: float(weight[c] @ at["last"])))
        for name in first:
            note(f"nearest {name}", min(means[name], key=lambda c: float((at[name] - means[name][c]).square().sum())))
        for name in ("1", "2"):
            normed = model.transformer.ln_f(at[name]).detach()
            note(f"lens {name}", max(candidates, key=lambda c: float(weight[c] @ normed)))
    return {
        (one, other): (sum(a == b for a, b in zip(chosen[one], chosen[other], strict=True)), len(chosen[one]))
        for one, other in itertools.combinations(chosen, 2)
    }


def test_every_share_is_that_of_a_loop_over_tokens(model: Any, corpus: Corpus, result: Result) -> None:
    found, expected = shares(result), by_loops(model, corpus)
    assert len(expected) == 7 * 6 // 2
    assert found == expected
    for row in result.tables["deciders"]:
        assert row.agreement == row.agreed / row.tokens


def test_its_accuracy_and_agreement_are_those_of_the_catalogue(result: Result) -> None:
    found = shares(result)
    for layer in ("1", "2"):
        agreed, tokens = found["head", f"nearest {layer}"]
        assert agreed / tokens == result.row("agreement", layer=layer).value
        assert found["token", f"nearest {layer}"][0] / tokens == result.row("ncc_accuracy", layer=layer).value
    assert found["token", "head"][0] / tokens == result.row("model_accuracy", layer="1").value


def test_a_measurement_without_it_is_what_it_was(model: Any, corpus: Corpus, result: Result) -> None:
    plain = measure(model, corpus, layers="all", tokens=400, batch=3, quiet=True)
    assert isinstance(plain, Result)
    assert plain.rows == result.rows
    assert list(plain.tables) == ["results"]
    assert "deciders" not in Options().facts()


def test_with_the_last_layer_alone_there_is_no_lens(model: Any, corpus: Corpus) -> None:
    last = measure(model, corpus, deciders=True, tokens=400, quiet=True)
    assert isinstance(last, Result)
    agreed, tokens = shares(last)["head", "nearest last"]
    assert set(shares(last)) == {("token", "head"), ("token", "nearest last"), ("head", "nearest last")}
    assert agreed / tokens == last.row("agreement").value
