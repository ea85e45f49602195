from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapselab.errors import ConfigError
from collapselab.records import run as runs
from collapselab.training.settings import Settings, paper_batch, plan, resolved, settings_from

SIZES = {"width": 64, "depth": 2}


def identity(settings: Settings, corpus: str) -> str:
    return runs.identity(resolved(settings), corpus)


def planned(blocks: int = 100, block: int = 64, **values: object):
    return plan(settings_from({**SIZES, **values}), blocks=blocks, block=block)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"widht": 64}, "widht is not a setting. Did you mean width\\?"),
        ({"zzz": 1}, "zzz is not a setting\\.$"),
        ({"width": "64"}, "width: '64' is not valid"),
        ({"width": 1}, "width must be ≥ 2, got 1"),
        ({"lr": 0.0}, "lr must be > 0"),
        ({"lr": float("nan")}, "lr: nan is not valid"),
        ({"dropout": 1.0}, "dropout must be < 1"),
        ({"optimizer": "lion"}, "optimizer: 'lion' is not valid.*adamw, adam, sgd, coupled-adam"),
        ({"epochs": 1.0, "steps": 5}, "epochs and steps are both given"),
        ({"batch": 4, "batch_tokens": 512}, "batch and batch_tokens are both given"),
        ({"seed": -1}, "seed must be ≥ 0"),
        ({"tied": 1}, "tied: 1 is not valid"),
    ],
)
def test_a_bad_setting_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_from({**SIZES, **values})


def test_width_and_depth_have_no_default() -> None:
    with pytest.raises(ConfigError, match="width is missing.*depth is missing"):
        settings_from({})


def test_the_defaults_are_the_papers() -> None:
    values = resolved(settings_from(SIZES))
    expected = {"family": "gpt-neo", "lr": 5e-5, "weight_decay": 5e-4, "optimizer": "adamw", "schedule": "linear", "warmup": 0, "clip": 1, "epochs": 1, "dropout": 0, "tied": True, "batch": 16}  # fmt: skip
    assert {name: values[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("depth", "width", "batch"),
    [(1, 64, 16), (1, 1024, 16), (2, 768, 16), (2, 1024, 8), (4, 64, 8), (4, 1024, 8), (8, 256, 8), (8, 512, 4), (12, 64, 4), (12, 1024, 4)],
)  # fmt: skip
def test_the_batch_is_the_papers_at_every_size(depth: int, width: int, batch: int) -> None:
    assert paper_batch(width, depth) == batch


def test_epochs_become_steps_over_batches_that_run_on() -> None:
    assert planned(blocks=100, batch=8).steps == 12  # 12.5, to even
    assert planned(blocks=100, batch=8, epochs=2.0).steps == 25
    assert planned(blocks=100, batch=8, epochs=0.5).steps == 6
    assert planned(blocks=3, batch=8, epochs=0.5).steps == 1
    assert planned(blocks=100, batch=8, steps=7).steps == 7


def test_a_batch_in_tokens_holds_whole_blocks() -> None:
    assert planned(block=64, batch_tokens=1000).batch == 15
    with pytest.raises(ConfigError, match="63 is less than one block of 64 tokens"):
        planned(block=64, batch_tokens=63)


def test_warm_up_is_a_share_or_steps() -> None:
    assert planned(steps=200, warmup=0.1).warmup == 20
    assert planned(steps=200, warmup=30).warmup == 30
    with pytest.raises(ConfigError, match="201 steps of a training of 200"):
        planned(steps=200, warmup=201)


def test_checkpoints_are_epochs_and_always_the_end() -> None:
    assert planned(batch=10, epochs=10.0, checkpoints="0,1,3,6,10").checkpoints == {
        0: "0", 10: "1", 30: "3", 60: "6", 100: "10",
    }  # fmt: skip
    assert planned(batch=10, epochs=2.5, checkpoints="").checkpoints == {25: "2.5"}
    assert planned(batch=10, epochs=2.0, checkpoints="0.5").checkpoints == {5: "0.5", 20: "2"}
    assert planned(batch=10, steps=7, checkpoints="0").checkpoints == {0: "0", 7: "0.7"}


def test_log_spaced_checkpoints_go_from_initialisation_to_the_end() -> None:
    found = planned(batch=10, steps=1000, checkpoints="log:4").checkpoints
    assert found == {0: "0", 1: "0.1", 10: "1", 100: "10", 1000: "100"}


@given(st.integers(1, 5000), st.integers(1, 64), st.integers(1, 4000), st.integers(2, 40))
def test_log_spaced_names_are_distinct_and_in_order(blocks: int, batch: int, steps: int, count: int) -> None:
    found = planned(blocks=blocks, batch=batch, steps=steps, checkpoints=f"log:{count}").checkpoints
    assert list(found) == sorted(found)
    assert {0, 1, steps} <= set(found)
    assert len(found) <= count + 1
    epochs = [float(name) for name in found.values()]
    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize(
    ("checkpoints", "message"),
    [
        ("0,x", "'0,x' is not valid"),
        ("-1", "'-1' is not valid"),
        ("nan", "'nan' is not valid"),
        ("0,inf", "'0,inf' is not valid"),
        ("0,2", "epoch 2 is after the end of the training, at epoch 1"),
        ("0.501,0.502", "epochs 0.501 and 0.502 are both step 5"),
        ("log:1", "'log:1' is not valid"),
        ("log:many", "'log:many' is not valid"),
    ],
)
def test_checkpoints_that_cannot_be_are_refused(checkpoints: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        planned(batch=10, epochs=1.0, checkpoints=checkpoints)


def test_a_corpus_without_a_whole_block_is_refused() -> None:
    with pytest.raises(ConfigError, match="no whole block of 64 tokens"):
        planned(blocks=0)


def test_the_identity_is_what_decides_the_weights() -> None:
    base = identity(settings_from(SIZES), "corpus")
    assert len(base) == 8
    same = [{"batch": 16}, {"data_seed": 0}, {"epochs": 1}]
    other = [{"width": 65}, {"seed": 1}, {"data_seed": 1}, {"lr": 1e-4}, {"weight_decay": 0.1}, {"checkpoints": "0,1"}]
    assert {identity(settings_from({**SIZES, **values}), "corpus") for values in same} == {base}
    others = {identity(settings_from({**SIZES, **values}), "corpus") for values in other}
    assert len(others) == len(other)
    assert base not in others
    assert identity(settings_from(SIZES), "another corpus") != base


def test_a_family_from_a_file_is_known_by_its_contents(tmp_path: Path) -> None:
    def made(text: str, folder: str) -> str:
        path = tmp_path / folder / "config.json"
        path.parent.mkdir()
        path.write_text(text)
        return identity(settings_from({**SIZES, "family": str(path)}), "corpus")

    first = made('{"model_type": "opt"}', "a")
    assert made('{"model_type": "opt"}', "b") == first
    assert made('{"model_type": "phi"}', "c") != first
