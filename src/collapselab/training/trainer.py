"""Our use of the Hugging Face Trainer: its loop, accelerate, mixed precision and DDP; our data and our loss.

Everything random is a function of (seed, step, process), and the order of the data one of (data seed, position): a
training state is weights, optimiser, a step number and what interventions keep, and resuming is exact because there
is nothing else to restore.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel, PrinterCallback, Trainer, TrainingArguments

from collapselab.corpus.blocks import Split
from collapselab.models.scores import LogitSpace, mask_inputs, split_features
from collapselab.models.taps import features, output_layer
from collapselab.training.heads.frozen import HeadUpdates
from collapselab.training.objective import Objective
from collapselab.training.optimizers import OPTIMIZERS
from collapselab.training.settings import Plan, Settings

SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


class LanguageTrainer(Trainer):
    """Trains on an endless stream of blocks, from `start` on, with the loss that never holds tokens × vocabulary."""

    def __init__(
        self,
        model: PreTrainedModel,
        split: Split,
        settings: Settings,
        plan: Plan,
        args: TrainingArguments,
        head_updates: HeadUpdates | None = None,
    ) -> None:
        super().__init__(model=model, args=args)
        self.remove_callback(PrinterCallback)
        self.bare, self.split, self.settings, self.plan = model, split, settings, plan
        self.start, self.head_updates = 0, head_updates
        self.step_loss: Tensor | None = None
        self.grad_norm: float | Tensor | None = None
        """Of the last step; a number as soon as that is read from the device."""
        self.head, self.space = output_layer(model), LogitSpace()
        divided = {"processes": args.world_size, "parts": args.gradient_accumulation_steps}
        self.step_objective = Objective(self.head, settings, steps=plan.steps, space=self.space, **divided)
        self._samples = split.samples()
        self._epochs: dict[int, _Epoch] = {}
        self._add_up_tied_gradients()

    def get_train_dataloader(self) -> Any:
        return self

    def __iter__(self) -> Iterator[dict[str, Tensor | float]]:
        """Micro-batches of this process. It is asked for after the state is restored, so `start` is known.

        The loss of a micro-batch is the mean of its labels. Where blocks differ in how many they have, it is weighted
        by its share of the step's, so that a step is the mean of its labels however it is divided.
        """
        args, batch = self.args, self.plan.batch
        parts = args.gradient_accumulation_steps
        size = batch // (parts * args.world_size)
        # However a step is divided over processes and parts, it covers the same positions of the endless stream.
        first = self.start * batch + args.process_index * size
        for at in range(first, self.plan.steps * batch, args.world_size * size):
            positions = range(at, at + size)
            numbers = self._numbers(positions)
            blocks = self.split.read(numbers)
            inputs: dict[str, Tensor | float] = {"input_ids": blocks.ids, "next_tokens": blocks.labels}
            if blocks.attention is not None:
                step = at // batch
                whole = self._numbers(range(step * batch, (step + 1) * batch))
                share = batch // size * int(self._samples[numbers].sum()) / int(self._samples[whole].sum())
                inputs |= {"attention_mask": blocks.attention, "share": share}
            yield inputs

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        ids = inputs["input_ids"]
        mask = mask_inputs(model, inputs.get("attention_mask"), ids.device)
        entering, labels = features(model, ids, **mask)[:, :-1], inputs["next_tokens"]
        if self.head_updates is not None:
            flat = entering.detach().reshape(-1, entering.shape[-1])
            self.head_updates.observe(flat, labels.reshape(-1))
        loss = self.step_objective(entering, labels)
        return loss * inputs["share"] if "share" in inputs else loss

    def training_step(self, model: nn.Module, inputs: dict[str, Tensor], num_items_in_batch: Any = None) -> Tensor:
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        self.step_loss = loss if self.step_loss is None else self.step_loss + loss
        return loss

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Decay for matrices and embeddings alone, as the library groups them; frozen parameters are in no group."""
        names = set(self.get_decay_parameter_names(self.bare))
        trained = [(name in names, p) for name, p in self.bare.named_parameters() if p.requires_grad]
        with_rows = {id(self.bare.get_input_embeddings().weight), id(self.head.weight)}
        groups = []
        for decays in (True, False):
            params = [p for decayed, p in trained if decayed == decays]
            vocabulary = [position for position, p in enumerate(params) if id(p) in with_rows]
            decay = self.settings.weight_decay if decays else 0.0
            groups.append({"params": params, "weight_decay": decay, "vocabulary": vocabulary})
        self.optimizer = OPTIMIZERS[self.settings.optimizer].make(groups, self.settings)
        if (head := self.head_updates) is not None:
            self.optimizer.register_step_post_hook(lambda *_: head.after_step(self.step_objective.total))
        return self.optimizer

    def floating_point_ops(self, inputs: dict[str, Tensor]) -> int:
        return 0  # the library counts all parameters again at every step

    def _get_grad_norm(self, model: nn.Module, grad_norm: Tensor | float | None = None) -> Tensor | float:
        norm: Tensor | float = super()._get_grad_norm(model, grad_norm=grad_norm)  # type: ignore[no-untyped-call]
        self.grad_norm = norm
        return norm

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Move all but the labels to the device: the objective checks and groups them on the CPU."""
        labels = inputs.pop("next_tokens")
        moved: dict[str, Any] = super()._prepare_inputs(inputs)
        return {**moved, "next_tokens": labels}

    def _add_up_tied_gradients(self) -> None:
        """Let an embedding that is the output layer too add its rows to that layer's gradient.

        Dense, it would fill a second matrix of its size with zeros at every step, and add that. On a CPU alone, where
        the sum has one order; with several processes the library reduces gradients of one layout.
        """
        embedding, alone = self.bare.get_input_embeddings(), self.args.world_size == 1
        if isinstance(embedding, nn.Embedding) and alone and self.args.device.type == "cpu":
            embedding.sparse = embedding.weight is self.head.weight

    def checkpoint_head(self) -> AbstractContextManager[None]:
        """For that time, the output layer is the one of a checkpoint."""
        if self.head_updates is None:
            return nullcontext()
        args = self.args
        training = split_features(
            self.bare, self.split, device=args.device, rank=args.process_index, world=args.world_size
        )
        return self.head_updates.of_checkpoint(training, self.step_objective.total)

    def tokens_after(self, step: int) -> int:
        """Labels that the first steps have trained on, of all processes."""
        epochs, rest = divmod(step * self.plan.batch, self.plan.blocks)
        begun = int(self._epoch(epochs).ends[rest - 1]) if rest else 0
        return epochs * int(self._samples.sum()) + begun

    def _numbers(self, positions: range) -> NDArray[np.int64]:
        """The blocks at these positions of the endless stream."""
        blocks = self.plan.blocks
        return np.array([self._epoch(position // blocks).order[position % blocks] for position in positions])

    def _epoch(self, epoch: int) -> "_Epoch":
        seed = self.settings.seed if self.settings.data_seed is None else self.settings.data_seed
        if epoch not in self._epochs:
            order = self.split.order(seed=seed, epoch=epoch)
            recent = {number: known for number, known in self._epochs.items() if number >= epoch - 1}
            self._epochs = recent | {epoch: _Epoch(order, np.cumsum(self._samples[order]))}
        return self._epochs[epoch]


class _Epoch(NamedTuple):
    """The blocks of an epoch in their order, and how many labels there are up to the end of each."""

    order: NDArray[np.int64]
    ends: NDArray[np.int64]


def training_arguments(
    settings: Settings, plan: Plan, *, folder: str, device: torch.device, bf16: bool, parts: int
) -> TrainingArguments:
    """The library's arguments. Logging, saving and evaluating are ours, so those of the library are off."""
    on_cpu = device.type == "cpu"
    args = TrainingArguments(
        output_dir=folder,
        max_steps=plan.steps,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=parts,
        learning_rate=settings.lr,
        weight_decay=settings.weight_decay,
        lr_scheduler_type=SCHEDULES[settings.schedule],
        warmup_steps=plan.warmup,
        max_grad_norm=settings.clip,
        bf16=bf16,
        seed=settings.seed,
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and "WORLD_SIZE" in os.environ else None,
        # an output layer of its own has its gradient from the loss: the search in the model would call it unused
        ddp_find_unused_parameters=None if settings.tied else False,
        logging_strategy="no",
        logging_nan_inf_filter=False,
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    if args.n_gpu > 1:
        args._n_gpu = 1  # one process, one GPU: the library would split every batch over all it finds
    return args


def seed_step(seed: int, step: int, rank: int) -> None:
    """Set the random state that dropout draws from in this step of this process."""
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=7).digest()
    torch.manual_seed(int.from_bytes(digest))
