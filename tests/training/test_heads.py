from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, nn

from collapselab.errors import ConfigError
from collapselab.records.run import RunFolder
from collapselab.training import Choice
from collapselab.training.heads import HEADS
from collapselab.training.settings import settings_from
from training.runs import assert_same_bits, logged, run, weights

HEAD = "lm_head.weight"


def frozen_rows(model: Any, settings: Any, generator: Generator) -> None:
    layer = model.get_output_embeddings()
    layer.weight = nn.Parameter(torch.randn(layer.weight.shape, generator=generator), requires_grad=False)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head added from outside, by its entry alone."""
    monkeypatch.setitem(HEADS, "frozen-rows", Choice(frozen_rows, "For tests.", "", "ours"))


def test_a_frozen_head_keeps_its_bits_and_the_rest_is_trained(corpus_folder: Path, tmp_path: Path) -> None:
    run(corpus_folder, tmp_path / "run", head="frozen-rows", tied=False)
    before, after = weights(tmp_path / "run", first=True), weights(tmp_path / "run")
    assert torch.equal(before[HEAD], after[HEAD])
    assert before[HEAD].std() > 0.5  # the rows of the head, not those that the library initialises
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert {*changed, HEAD} == before.keys()


def test_another_head_leaves_every_other_initial_weight_as_it_was(corpus_folder: Path, tmp_path: Path) -> None:
    for head in ("learned", "frozen-rows"):
        run(corpus_folder, tmp_path / head, head=head, tied=False, steps=1)
    learned, frozen = (weights(tmp_path / head, first=True) for head in ("learned", "frozen-rows"))
    assert not torch.equal(learned.pop(HEAD), frozen.pop(HEAD))
    assert_same_bits(learned, frozen)


def test_the_rows_of_a_head_follow_from_the_seed(corpus_folder: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run(corpus_folder, tmp_path / name, head="frozen-rows", tied=False, steps=1, seed=seed)
    rows = [weights(tmp_path / name)[HEAD] for name in "abc"]
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])


def test_a_head_of_its_own_is_refused_where_embeddings_are_tied(corpus_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="head: frozen-rows is not the input embeddings, but tied is true"):
        run(corpus_folder, tmp_path / "run", head="frozen-rows")


def test_a_head_that_there_is_not_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="head: 'frozen-row' is not valid: did you mean frozen-rows\\?"):
        settings_from({"width": 16, "depth": 1, "head": "frozen-row"})


def test_a_stopped_training_with_a_frozen_head_goes_on_to_the_same_bits(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(corpus_folder, tmp_path / "whole", head="frozen-rows", tied=False)
    with monkeypatch.context() as patch:

        def crash(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(RunFolder, "drop_states", crash)
        patch.setattr(RunFolder, "rewind_log", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            run(corpus_folder, tmp_path / "half", head="frozen-rows", tied=False, options={"save_minutes": 0})
    last = RunFolder(tmp_path / "half").checkpoint_names()[-1]
    (tmp_path / "half" / "checkpoints" / last / "model.safetensors").write_bytes(b"")  # it is made again, from step 5
    run(corpus_folder, tmp_path / "half", head="frozen-rows", tied=False)
    assert_same_bits(weights(tmp_path / "whole"), weights(tmp_path / "half"))
    assert logged(tmp_path / "whole", "loss") == logged(tmp_path / "half", "loss")
