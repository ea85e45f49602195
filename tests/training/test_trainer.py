from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import TrainerCallback

from collapselab.corpus.blocks import Corpus
from collapselab.models.build import build_config, build_model
from collapselab.training.settings import Plan, Settings
from collapselab.training.trainer import LanguageTrainer, training_arguments


def trainer(corpus: Path, folder: Path, *, tied: bool) -> LanguageTrainer:
    split = Corpus(corpus).train
    settings, plan = Settings(width=16, depth=1, batch=4), Plan(split.block, len(split), 4, 3, 0, {})
    config = build_config("gpt-neo", width=16, depth=1, vocabulary=300, positions=split.block, tied=tied)
    cpu = torch.device("cpu")
    args = training_arguments(settings, plan, folder=str(folder), device=cpu, bf16=False, parts=1)
    return LanguageTrainer(build_model(config, seed=0), split, settings, plan, args)


def gradients(one: LanguageTrainer, *, sparse: bool) -> dict[str, Tensor]:
    one.bare.get_input_embeddings().sparse = sparse
    one.bare.zero_grad()
    one.compute_loss(one.bare, next(iter(one))).backward()
    return {name: parameter.grad for name, parameter in one.bare.named_parameters()}


def test_a_tied_embedding_adds_its_rows_to_the_output_layers_gradient(corpus_folder: Path, tmp_path: Path) -> None:
    one = trainer(corpus_folder, tmp_path, tied=True)
    assert one.bare.get_input_embeddings().sparse
    added, dense = gradients(one, sparse=True), gradients(one, sparse=False)
    assert all(gradient.layout == torch.strided for gradient in added.values())
    assert_close(added, dense)


def test_an_embedding_of_its_own_has_a_dense_gradient_as_the_optimiser_wants_it(
    corpus_folder: Path, tmp_path: Path
) -> None:
    one = trainer(corpus_folder, tmp_path, tied=False)
    assert not one.bare.get_input_embeddings().sparse
    assert gradients(one, sparse=True)["transformer.wte.weight"].is_sparse  # the control


def test_batches_use_the_same_memory_for_their_logits(corpus_folder: Path, tmp_path: Path) -> None:
    one = trainer(corpus_folder, tmp_path, tied=True)
    batch = next(iter(one))
    places = set()
    for _ in range(2):
        one.compute_loss(one.bare, batch).backward()
        assert one.space._buffer is not None
        places.add(one.space._buffer.data_ptr())
    assert len(places) == 1


def test_a_model_that_is_evaluated_between_steps_is_trained_again(corpus_folder: Path, tmp_path: Path) -> None:
    one = trainer(corpus_folder, tmp_path, tied=True)
    one.add_callback(steps := Steps(one))
    one.train()
    assert steps.modes == [(True, True)] * 3


class Steps(TrainerCallback):
    """Records the modes of the model and of its layers at the end of each step, then evaluates."""

    def __init__(self, one: LanguageTrainer) -> None:
        self.trainer = one
        self.modes: list[tuple[bool, bool]] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.step_objective.begin_step(state.global_step)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        model = self.trainer.bare
        self.modes.append((model.training, model.base_model.training))
        model.eval()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self.trainer.step_objective.end_step()
