"""How far values depend on the number of tokens: half of the sample beside all of it, and what the table says."""

import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from torch import nn

from collapselab.core.catalogue import Need
from collapselab.corpus.blocks import Corpus
from collapselab.measurement import measure_model as walk
from collapselab.measurement import resume as store
from collapselab.measurement.collector import needing
from collapselab.measurement.collectors.moments import SamplePart, compare_halves, half_of
from collapselab.measurement.measure import measure
from collapselab.measurement.show import shown
from collapselab.records.measurement import Result
from collapselab.records.tables import Row

ROW = Row(
    run="a", checkpoint="-", metric="cdnv", value=0.109, null=0.5, classes=100, tokens=5110, min_count=1, left_out=0
)


def measured(model: nn.Module, corpus: Corpus, **options: Any) -> Result:
    result = measure(model, corpus, quiet=True, **options)
    assert isinstance(result, Result)
    return result


def first_blocks(corpus: Corpus, blocks: int, of: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on a sample of the training split is the first blocks of what it would be."""
    chosen = np.sort(corpus.train.order(seed=0)[:of])[:blocks]
    monkeypatch.setattr(corpus.train, "order", lambda **_: chosen)


@pytest.mark.parametrize(("blocks", "batch", "half"), [(40, 4, 20), (33, 8, 16), (20, 64, 10), (13, 8, 6)])
def test_the_values_of_the_half_are_those_of_measuring_it_alone(
    model: nn.Module, corpus: Corpus, blocks: int, batch: int, half: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = measured(model, corpus, tokens=blocks * 31, batch=batch)
    first_blocks(corpus, half, blocks, monkeypatch)
    alone = measured(model, corpus, tokens=half * 31, batch=batch)
    facts = whole.facts["half_sample"]
    assert (facts["part_tokens"], facts["tokens"]) == (half * 31, blocks * 31)
    assert set(facts["values"]) == needing(Need.MEANS) - {"alpha_req"}  # twelve dimensions are too few for it
    for metric, value in facts["values"].items():
        assert value == pytest.approx(alone.row(metric).value, rel=1e-9, abs=1e-12), metric


def test_the_half_takes_no_further_forward_pass_and_survives_an_interruption(
    model: nn.Module, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(store, "SAVE_FACTOR", 0)
    options: dict[str, Any] = {"tokens": 900, "batch": 4}
    whole = measured(model, corpus, **options)
    real, ran = walk.features, 0

    def features(*args: Any, **inputs: Any) -> Any:
        nonlocal ran
        ran += 1
        if ran == 7:
            raise KeyboardInterrupt
        return real(*args, **inputs)

    monkeypatch.setattr(walk, "features", features)
    with pytest.raises(KeyboardInterrupt):
        measured(model, corpus, state=tmp_path, **options)
    again = measured(model, corpus, state=tmp_path, **options)
    assert ran == 17
    assert again.facts["half_sample"] == whole.facts["half_sample"]


def test_with_resamples_it_is_the_mean_over_random_halves(model: nn.Module, corpus: Corpus) -> None:
    result = measured(model, corpus, tokens=32 * 31, bootstrap=4)
    halves = [value for pair in result.facts["halves"]["train/last/all/cdnv"] for value in pair]
    half = result.facts["half_sample"]
    assert half["values"]["cdnv"] == pytest.approx(math.fsum(halves) / 16, rel=1e-12)
    assert half["part_tokens"] == 16 * 31


def test_a_sample_of_one_block_has_no_half(model: nn.Module, corpus: Corpus) -> None:
    assert half_of(1, 4) is None
    assert measured(model, corpus, tokens=31).facts["half_sample"] is None


@pytest.mark.parametrize(
    ("half", "low", "high", "changing"),
    [
        (0.097, None, None, True),  # a doubling adds 0.012, more than 5 % of 0.109
        (0.1035, None, None, True),  # 0.0055 is more than 5 % of 0.109; not so beside a null at a distance of 0.391
        (0.097, 0.08, 0.14, False),  # 0.121 is inside the interval
        (0.097, 0.10, 0.12, True),
    ],
)
def test_a_value_that_twice_the_tokens_would_move_too_far_is_known(
    half: float, low: float | None, high: float | None, changing: bool
) -> None:
    row = replace(ROW, low=low, high=high, null=None)
    found = compare_halves(SamplePart(2555, {"cdnv": half}), [row], 5110)
    assert found is not None
    assert (found["changing"] == ["cdnv"]) is changing
    beside_null = compare_halves(SamplePart(2555, {"cdnv": 0.1035}), [ROW], 5110)
    assert beside_null is not None
    assert not beside_null["changing"]


def test_the_change_of_a_doubling_is_that_of_the_logarithm() -> None:
    row = replace(ROW, null=None)
    eighth = compare_halves(SamplePart(640, {"cdnv": 0.109 - 3 * 0.004}), [row], 5120)
    assert eighth is not None
    assert not eighth["changing"], "0.004 a doubling, though 0.012 since an eighth of the sample"
    assert compare_halves(SamplePart(5110, {"cdnv": 0.1}), [row], 5110) is None
    assert compare_halves(None, [row], 5110) is None


def test_the_sizes_of_the_classes_are_facts_and_in_the_table(model: nn.Module, corpus: Corpus) -> None:
    result = measured(model, corpus, tokens=300)
    counts = {
        split: np.bincount(
            np.concatenate(
                [corpus.splits[split][int(i)][1:].numpy() for i in np.sort(corpus.splits[split].order(seed=0)[:10])]
            )
        )
        for split in ("train", "validation")
    }
    for split, found in counts.items():
        facts = result.facts["splits"][split]
        assert facts["classes"] == (found > 0).sum() == result.row("cdnv", split=split).classes
        assert facts["classes_seen_once"] == (found == 1).sum() > 0
        assert facts["tokens_per_class"] == pytest.approx(310 / (found > 0).sum())
    left_out = result.facts["splits"]["validation"]["left_out"]
    assert left_out == result.row("agreement").left_out
    text = printed(result)
    once = result.facts["splits"]["train"]["classes_seen_once"] / result.facts["splits"]["train"]["classes"]
    assert f"{once:.0%} of them seen once" in text
    assert "tokens a class" in text
    assert f"NC4 leaves out {left_out / 310:.0%} of the tokens" in text


def test_a_changing_value_is_marked_and_said_in_words(model: nn.Module, corpus: Corpus) -> None:
    result = measured(model, corpus, tokens=300)
    assert "cdnv" in result.facts["half_sample"]["changing"], "so small a sample changes it"
    value, half = result.row("cdnv").value, result.facts["half_sample"]["values"]["cdnv"]
    text = printed(result)
    assert f"{value:.4g}†" in text
    assert "still changes with the number of tokens: half the sample gives" in text
    assert f"cdnv {half:.4g}, all of it {value:.4g}" in text
    facts = {**result.facts, "half_sample": {**result.facts["half_sample"], "changing": []}}
    assert "†" not in printed(Result(result.rows, facts))
    old = {name: fact for name, fact in result.facts.items() if name != "half_sample"}
    assert "†" not in printed(Result(result.rows, old)), "a result of an earlier version"


def printed(result: Result) -> str:
    console = Console(width=400, file=io.StringIO())
    with console.capture() as captured:
        console.print(shown(result))
    return " ".join(captured.get().split())
