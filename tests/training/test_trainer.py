from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from collapselab.corpus.blocks import Corpus
from collapselab.models.build import build_config, build_model
from collapselab.training.settings import Plan, Settings
from collapselab.training.trainer import LanguageTrainer, training_arguments


def trainer(corpus: Path, folder: Path, *, tied: bool) -> LanguageTrainer:
    split = Corpus(corpus).train
    settings, plan = Settings(width=16, depth=1, batch=4), Plan(split.block, len(split), 4, 3, 0, {})
    config = build_config("gpt-neo", width=16, depth=1, vocabulary=300, positions=split.block, tied=tied)
    cpu = torch.device("cpu")
    args = training_arguments(settings, plan, folder=str(folder), device=cpu, bf16=False, parts=1, report_to="none")
    return LanguageTrainer(build_model(config, seed=0), split, settings, plan, args)


@pytest.mark.parametrize("tied", [True, False])
def test_an_embedding_adds_its_rows_to_the_output_layers_gradient(
    tied: bool, corpus_folder: Path, tmp_path: Path
) -> None:
    one = trainer(corpus_folder, tmp_path, tied=tied)
    batch, embedding = next(iter(one)), one.bare.get_input_embeddings()
    assert embedding.sparse is tied
    found = {}
    for sparse in (tied, False):
        embedding.sparse = sparse
        one.bare.zero_grad()
        one.compute_loss(one.bare, batch).backward()
        found[sparse] = {name: parameter.grad for name, parameter in one.bare.named_parameters()}
    assert all(gradient.layout == torch.strided for gradient in found[tied].values())
    assert_close(found[tied], found[False])


def test_batches_use_the_same_memory_for_their_logits(corpus_folder: Path, tmp_path: Path) -> None:
    one = trainer(corpus_folder, tmp_path, tied=True)
    batch = next(iter(one))
    places = set()
    for _ in range(2):
        one.compute_loss(one.bare, batch).backward()
        assert one.space._held is not None
        places.add(one.space._held.data_ptr())
    assert len(places) == 1


def test_trackers_file_a_run_under_its_folders_name(corpus_folder: Path, tmp_path: Path) -> None:
    args = trainer(corpus_folder, tmp_path / "02x0128-lr0.002", tied=True).args
    assert (args.project, args.run_name) == ("collapselab", "02x0128-lr0.002")
