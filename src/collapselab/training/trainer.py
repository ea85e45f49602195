"""Our use of the Hugging Face Trainer: its loop, accelerate, mixed precision, DDP and trackers; our data and our loss.

Everything random is a function of (seed, step, process), and the order of the data one of (data seed, position): a
training state is weights, optimiser and a step number, and resuming is exact because there is nothing else to restore.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PrinterCallback, Trainer, TrainingArguments

from collapselab.corpus.blocks import Split
from collapselab.models.scores import LogitSpace
from collapselab.models.taps import features, output_layer
from collapselab.training.loss import next_token_loss
from collapselab.training.settings import Plan, Settings

PROJECT = "collapselab"
"""What trackers file runs under, each by the name of its folder."""

SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


@final
class LanguageTrainer(Trainer):
    """Trains on an endless stream of blocks, from `start` on, with the loss that never holds tokens × vocabulary."""

    def __init__(
        self, model: PreTrainedModel, split: Split, settings: Settings, plan: Plan, args: TrainingArguments
    ) -> None:
        super().__init__(model=model, args=args)
        self.remove_callback(PrinterCallback)
        self.bare, self.split, self.settings, self.plan = model, split, settings, plan
        self.start = 0
        self.step_loss: Tensor | None = None
        self.grad_norm: float | None = None
        self.head, self.space = output_layer(model), LogitSpace()
        self._add_up_tied_gradients()

    def get_train_dataloader(self) -> Any:
        return self

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """Micro-batches of this process. It is asked for after the state is restored, so `start` is known."""
        args = self.args
        for positions in micro_batches(
            self.plan,
            start=self.start,
            parts=args.gradient_accumulation_steps,
            rank=args.process_index,
            world=args.world_size,
        ):
            yield {"input_ids": self._blocks(positions)}

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        ids, head = inputs["input_ids"], self.head
        entering = features(model, ids)[:, :-1]
        return next_token_loss(
            entering.reshape(-1, entering.shape[-1]),
            head.weight,
            ids[:, 1:].reshape(-1),
            bias=head.bias,
            softcap=head.softcap,
            scale=head.scale,
            label_smoothing=self.settings.label_smoothing,
            space=self.space,
        )

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        loss = super().training_step(*args, **kwargs)
        self.step_loss = loss if self.step_loss is None else self.step_loss + loss
        return loss

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Decay for matrices and embeddings alone, as the library groups them."""
        decayed, named = set(self.get_decay_parameter_names(self.bare)), dict(self.bare.named_parameters())
        groups = [
            {"params": [p for name, p in named.items() if name in decayed], "weight_decay": self.settings.weight_decay},
            {"params": [p for name, p in named.items() if name not in decayed], "weight_decay": 0.0},
        ]
        if self.settings.optimizer == "sgd":
            self.optimizer = torch.optim.SGD(groups, lr=self.settings.lr, momentum=0.9)
        else:
            kind = torch.optim.AdamW if self.settings.optimizer == "adamw" else torch.optim.Adam
            self.optimizer = kind(groups, lr=self.settings.lr, fused=True)
        return self.optimizer

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        return 0  # the library counts all parameters anew at every step

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)  # type: ignore[no-untyped-call]
        self.grad_norm = float(norm)
        return norm

    def _add_up_tied_gradients(self) -> None:
        """Let an embedding that is the output layer too add its rows to that layer's gradient.

        Dense, it would fill a second matrix of its size with zeros at every step, and add that. On a CPU alone, where
        the sum has one order; with several processes the library reduces gradients of one layout.
        """
        embedding, alone = self.bare.get_input_embeddings(), self.args.world_size == 1
        if isinstance(embedding, nn.Embedding) and alone and self.args.device.type == "cpu":
            embedding.sparse = embedding.weight is self.head.weight

    def _blocks(self, positions: range) -> Tensor:
        epochs = sorted({position // self.plan.blocks for position in positions})
        orders = {epoch: self._order(epoch) for epoch in epochs}
        chosen = [orders[position // self.plan.blocks][position % self.plan.blocks] for position in positions]
        return torch.from_numpy(self.split.ids[chosen].astype("int64"))

    def _order(self, epoch: int) -> Any:
        seed = self.settings.seed if self.settings.data_seed is None else self.settings.data_seed
        known: dict[int, Any] = self.__dict__.setdefault("_orders", {})
        if epoch not in known:
            for old in [one for one in known if one < epoch - 1]:
                del known[old]
            known[epoch] = self.split.order(seed=seed, epoch=epoch)
        return known[epoch]


def micro_batches(plan: Plan, *, start: int, parts: int, rank: int, world: int) -> Iterator[range]:
    """Positions in the endless stream of blocks that one process takes at once, `parts` of them a step.

    However a step is divided over processes and parts, it covers the same positions.
    """
    size = plan.batch // (parts * world)
    for step in range(start, plan.steps):
        for part in range(parts):
            first = step * plan.batch + (part * world + rank) * size
            yield range(first, first + size)


def training_arguments(
    settings: Settings, plan: Plan, *, folder: str, device: torch.device, bf16: bool, parts: int, report_to: str
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
        logging_strategy="no",
        logging_nan_inf_filter=False,
        save_strategy="no",
        eval_strategy="no",
        report_to=report_to,
        project=PROJECT,
        run_name=Path(folder).resolve().name,
        disable_tqdm=True,
    )
    if args.n_gpu > 1:
        args._n_gpu = 1  # one process, one GPU: the library would split every batch over all it finds
    return args


def seed_step(seed: int, step: int, rank: int) -> None:
    """Set the random state that dropout draws from in this step of this process."""
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=7).digest()
    torch.manual_seed(int.from_bytes(digest))
