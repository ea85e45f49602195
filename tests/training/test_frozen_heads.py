import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from transformers import AutoModelForCausalLM

from collapselab.core.metrics import collapse_metrics
from collapselab.core.moments import ClassMoments
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError
from collapselab.records.run import RunFolder, RunRecord, identity
from collapselab.suite.plan import run_name
from collapselab.training.heads import HEADS
from collapselab.training.heads.frozen import permutation_within_bins, spread_rows
from collapselab.training.settings import resolved, settings_from
from training.runs import SMALL, assert_same_bits, run, run_in_two, weights

HEAD = "lm_head.weight"
CONSTRUCTED = ("frozen-init", "frozen-sphere", "frozen-code")
DONATED = ("frozen-donor", "frozen-donor-permuted")


@pytest.fixture(scope="session")
def donor(corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("donors") / "donor"
    run(corpus_folder, folder, seed=7)
    return folder


@pytest.fixture(scope="session")
def characters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of few tokens: a simplex frame of them fits into a small model."""
    text = tmp_path_factory.mktemp("text") / "abc.txt"
    text.write_text("\n\n".join("abcd"[i % 4] * 5 + "dcba" * (i % 7) for i in range(200)))
    folder = text.parent / "characters"
    build_corpus(open_source([str(text)]), folder, Recipe(tokenizer="bpe:260", block=16))
    return folder


def given(head: str, donor: Path) -> dict[str, Any]:
    return {"head": head, "tied": False} | ({"donor": str(donor)} if head in DONATED else {})


def names() -> list[str]:
    return [name for name in HEADS if name.startswith("frozen-") and name != "frozen-etf"]


@pytest.mark.slow
@pytest.mark.parametrize("head", names())
def test_a_frozen_head_stays_and_every_other_weight_starts_as_it_would(
    head: str, donor: Path, corpus_folder: Path, tmp_path: Path
) -> None:
    run(corpus_folder, tmp_path / "learned", tied=False)
    run(corpus_folder, tmp_path / "frozen", **given(head, donor))
    learned, before, after = (
        weights(tmp_path / name, first=first)
        for name, first in (("learned", True), ("frozen", True), ("frozen", False))
    )
    assert torch.equal(before[HEAD], after[HEAD])
    assert {name for name in before if not torch.equal(before[name], after[name])} == before.keys() - {HEAD}
    assert torch.equal(learned.pop(HEAD), before.pop(HEAD)) is (head == "frozen-init")
    assert_same_bits(learned, before)


@pytest.mark.slow
@pytest.mark.parametrize("head", names())
def test_a_stopped_training_goes_on_to_the_same_bits(
    head: str, donor: Path, corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(corpus_folder, tmp_path / "whole", **given(head, donor))
    run_in_two(corpus_folder, tmp_path / "two", monkeypatch, **given(head, donor))
    assert_same_bits(weights(tmp_path / "whole"), weights(tmp_path / "two"))


def test_a_frozen_head_is_trained_with_in_half_precision(corpus_folder: Path, tmp_path: Path) -> None:
    made = run(corpus_folder, tmp_path, precision="bf16", head="frozen-code", tied=False)
    assert made[-1].val_loss is not None
    assert math.isfinite(made[-1].val_loss)


@pytest.mark.parametrize("head", ["frozen-sphere", "frozen-code"])
def test_constructed_rows_have_length_one(head: str, corpus_folder: Path, tmp_path: Path) -> None:
    run(corpus_folder, tmp_path, head=head, tied=False, steps=1)
    norms = weights(tmp_path)[HEAD].norm(dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms), rtol=1e-5, atol=0)


def log_distances(rows: Tensor) -> Tensor:
    return torch.pdist(torch.nn.functional.normalize(rows.double(), dim=1)).log()


def test_rows_of_a_code_are_further_apart_than_those_of_the_sphere(corpus_folder: Path, tmp_path: Path) -> None:
    for head in ("frozen-sphere", "frozen-code"):
        run(corpus_folder, tmp_path / head, head=head, tied=False, steps=1)
    sphere, code = (log_distances(weights(tmp_path / head)[HEAD]) for head in ("frozen-sphere", "frozen-code"))
    assert code.std() < 0.95 * sphere.std()
    assert code.mean() > sphere.mean()
    assert code.min() > sphere.min() + 0.2


def test_few_rows_that_are_spread_are_a_simplex_frame() -> None:
    rows = spread_rows(torch.randn(9, 12, generator=Generator().manual_seed(0)), Generator().manual_seed(1))
    cosines = (rows @ rows.T)[~torch.eye(9, dtype=torch.bool)]
    torch.testing.assert_close(cosines, torch.full_like(cosines, -1 / 8), rtol=0, atol=0.01)


def test_many_rows_that_are_spread_are_as_even_as_a_code_can_be() -> None:
    """Welch's bound: no K rows of length 1 in D dimensions have a smaller mean of squared cosines over pairs."""
    start = torch.nn.functional.normalize(torch.randn(200, 16, generator=Generator().manual_seed(0)), dim=1)
    rows = spread_rows(start, Generator().manual_seed(1))
    bound = (200 - 16) / (16 * 199)
    drawn, spread = (float((one @ one.T)[~torch.eye(200, dtype=torch.bool)].square().mean()) for one in (start, rows))
    assert bound < spread < 1.005 * bound
    assert drawn > 1.05 * bound
    assert float(rows.sum(0).norm()) < 0.01 * float(start.sum(0).norm())


def test_rows_are_spread_in_subsets_and_follow_from_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collapselab.training.heads.frozen.ROWS_AT_ONCE", 16)
    start = torch.nn.functional.normalize(torch.randn(60, 8, generator=Generator().manual_seed(0)), dim=1)
    first, again, other = (spread_rows(start, Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert log_distances(first).std() < 0.95 * log_distances(start).std()
    assert log_distances(first).mean() > log_distances(start).mean() + 0.01, "the energy that is descended on"


def test_the_frozen_simplex_frame_has_no_error(characters: Path, tmp_path: Path) -> None:
    """The head as class means of its own: `etf_error` and every other NC2 metric are at their ideal."""
    classes = Corpus(characters).vocabulary
    run(characters, tmp_path, head="frozen-etf", tied=False, width=classes, steps=2, head_size=classes)
    rows = weights(tmp_path)[HEAD].double()
    moments = ClassMoments.empty(classes, rows.shape[1])
    moments.update(rows.repeat(2, 1), torch.arange(classes).repeat(2))
    found = collapse_metrics(moments)
    assert found["etf_error"].value == pytest.approx(0, abs=1e-5)
    assert found["cosine_mean"].value == pytest.approx(-1 / (classes - 1), abs=1e-6)
    assert found["norm_cv"].value == pytest.approx(0, abs=1e-6)


def test_a_donors_rows_are_its_output_layer(donor: Path, corpus_folder: Path, tmp_path: Path) -> None:
    run(corpus_folder, tmp_path / "run", steps=1, **given("frozen-donor", donor))
    assert torch.equal(weights(tmp_path / "run")[HEAD], weights(donor)["transformer.wte.weight"])


def test_permuted_rows_are_the_donors_in_another_order(donor: Path, corpus_folder: Path, tmp_path: Path) -> None:
    run(corpus_folder, tmp_path / "run", steps=1, **given("frozen-donor-permuted", donor))
    rows, own = weights(tmp_path / "run")[HEAD], weights(donor)["transformer.wte.weight"]
    moved = (rows != own).any(1)
    assert moved.float().mean() > 0.8
    order, expected = (torch.argsort(one[:, 0]) for one in (rows, own))
    assert torch.equal(rows[order], own[expected])


def test_rows_are_permuted_inside_bins_of_frequency() -> None:
    counts = torch.arange(100).flip(0)  # class c has rank c
    rows = permutation_within_bins(counts, Generator().manual_seed(0))
    assert sorted(rows.tolist()) == list(range(100))
    for start, stop in ((0, 16), (16, 32), (32, 64), (64, 100)):
        assert set(rows[start:stop].tolist()) == set(range(start, stop))


def test_a_run_is_known_by_its_donors_weights_and_not_by_their_place(
    donor: Path, corpus_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(donor, tmp_path / "moved")
    last = RunFolder(donor).checkpoint_names()[-1]
    places = (donor, tmp_path / "moved", donor / "checkpoints" / last, donor / "checkpoints" / "0")
    settings = [settings_from(SMALL | given("frozen-donor", place)) for place in places]
    known = [identity(resolved(one), "corpus") for one in settings]
    assert known[0] == known[1] == known[2]
    assert known[0] != known[3]
    assert run_name(settings[0], "corpus") == run_name(settings[1], "corpus")


def test_a_checkpoint_with_a_frozen_head_is_read_by_the_library(corpus_folder: Path, tmp_path: Path) -> None:
    run(corpus_folder, tmp_path, head="frozen-code", tied=False, steps=1)
    last = RunFolder(tmp_path).checkpoints()[-1].path
    model = AutoModelForCausalLM.from_pretrained(last)
    assert torch.equal(model.get_output_embeddings().weight, weights(tmp_path)[HEAD])


def refused(corpus: Path, out: Path, message: str, **values: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        run(corpus, out, **values)
    assert not RunFolder(out).exists(), "run.json is written after all that can be refused"


@pytest.mark.parametrize("head", [*names(), "frozen-etf"])
def test_a_frozen_head_is_refused_where_embeddings_are_tied(
    head: str, donor: Path, corpus_folder: Path, tmp_path: Path
) -> None:
    message = f"head: {head} is not the input embeddings, but tied is true. Set tied to false"
    refused(corpus_folder, tmp_path / "run", message, **given(head, donor) | {"tied": True})


def test_too_many_tokens_for_a_simplex_frame_are_named(corpus_folder: Path, tmp_path: Path) -> None:
    message = "head: a simplex frame in 16 dimensions holds at most 17 tokens, got 300"
    refused(corpus_folder, tmp_path / "run", message, head="frozen-etf", tied=False)


def test_a_donor_of_another_shape_is_refused(donor: Path, corpus_folder: Path, tmp_path: Path) -> None:
    message = "has an output layer of 300 tokens × 16, but this model needs 300 tokens × 32"
    refused(corpus_folder, tmp_path / "run", message, **given("frozen-donor", donor), width=32)


def test_a_donor_with_another_tokenizer_is_refused(donor: Path, corpus_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(donor, tmp_path / "other")
    last = RunFolder(donor).checkpoints()[-1].name
    (tmp_path / "other" / "checkpoints" / last / "tokenizer.json").write_text("{}")
    message = "was trained with another tokenizer than this corpus"
    refused(corpus_folder, tmp_path / "run", message, **given("frozen-donor", tmp_path / "other"))


def test_an_unfinished_donor_is_refused(donor: Path, corpus_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(donor, tmp_path / "half")
    last = RunFolder(donor).checkpoints()[-1].name
    shutil.rmtree(tmp_path / "half" / "checkpoints" / last)
    message = "donor: .*half is neither a finished run nor a checkpoint of one"
    refused(corpus_folder, tmp_path / "run", message, **given("frozen-donor", tmp_path / "half"))


@pytest.mark.parametrize("change", ["no width", "a width that is text", "no checkpoints"])
def test_a_donor_whose_record_is_made_up_is_refused(
    change: str, donor: Path, corpus_folder: Path, tmp_path: Path
) -> None:
    """With a checksum that fits: whoever makes a folder for others can make that too."""
    shutil.copytree(donor, tmp_path / "forged")
    record = RunRecord.read(donor / "run.json")
    if change == "no checkpoints":
        record = record.model_copy(update={"plan": record.plan.model_copy(update={"checkpoints": {}})})
    else:
        settings = {name: value for name, value in record.settings.items() if name != "width"}
        record = record.model_copy(update={"settings": settings | ({} if change == "no width" else {"width": "x"})})
    record.write(tmp_path / "forged" / "run.json")
    message = "neither a finished run" if change == "no checkpoints" else "300 tokens × (None|x), but"
    refused(corpus_folder, tmp_path / "run", message, **given("frozen-donor", tmp_path / "forged"))


def test_a_donor_that_is_no_run_is_refused(corpus_folder: Path, tmp_path: Path) -> None:
    message = "nowhere is neither a finished run nor a checkpoint of one"
    refused(corpus_folder, tmp_path / "run", message, **given("frozen-donor", tmp_path / "nowhere"))


def test_a_donor_and_its_head_need_each_other(donor: Path, corpus_folder: Path, tmp_path: Path) -> None:
    refused(
        corpus_folder, tmp_path / "a", "donor: .* head frozen-donor with donor None", head="frozen-donor", tied=False
    )
    message = "donor: .* head frozen-code with donor"
    refused(corpus_folder, tmp_path / "b", message, head="frozen-code", tied=False, donor=str(donor))
