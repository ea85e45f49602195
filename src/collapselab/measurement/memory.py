"""The memory of a measurement, to about 30 %: what its collectors need, and what is free."""

import os
from pathlib import Path

import psutil
import torch

from collapselab.errors import ConfigError
from collapselab.measurement.collectors import COLLECTORS
from collapselab.measurement.plan import SPLITS, MeasurePlan

OVERHEAD_BYTES = 36 << 20
"""Threads, libraries loaded on the way, and what the allocator keeps."""
CGROUP = Path("/sys/fs/cgroup")


def needed_bytes(plan: MeasurePlan) -> float:
    """Return the peak memory of a process beside the weights: a batch, and the collectors of the larger pass."""
    activations = 16 * plan.batch_tokens * plan.width * plan.model.head.weight.element_size()
    passes = (sum(kind.bytes(plan, split) for kind in COLLECTORS if kind.wanted(plan, split)) for split in SPLITS)
    return activations + max(passes) + OVERHEAD_BYTES


def free_bytes(device: torch.device) -> int:
    """Return the memory that this process can still get: of its GPU, or of the machine and its container."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    free = int(psutil.virtual_memory().available)
    try:
        limit, used = (int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        fields = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no container, or one without a limit, whose memory.max is "max"
        return free
    # The kernel drops pages of files that nobody uses before it refuses memory.
    return max(0, min(free, limit - used + int(fields.get("inactive_file", 0))))


def check_memory(plan: MeasurePlan) -> None:
    """Raise ConfigError if the measurement needs more memory than is free."""
    options, needed, free = plan.options, needed_bytes(plan), free_bytes(plan.model.device)
    if plan.model.device.type != "cuda":
        needed *= int(os.environ.get("LOCAL_WORLD_SIZE", plan.processes.world))  # processes of this machine
    if needed <= free:
        return
    changes = {
        "--layers last": options.layers == "all",
        "--no-null": options.null,
        "no --bootstrap": options.bootstrap > 0,
        "--tokens N for fewer tokens, which have fewer classes": True,
        "--min-count N": True,
        "fewer --contexts or a larger --min-uses": bool(plan.contexts),
        "--shard-classes with torchrun on several machines": not options.shard_classes,
    }
    layers = "all layers" if options.layers == "all" else "the last layer"
    raise ConfigError(
        f"{plan.model.name}: needs about {needed / 1e9:,.1f} GB of memory beside the model, but {free / 1e9:,.1f} GB "
        f"are free. Most of it is tables of {plan.splits['train'].numbers.classes:,} classes at {layers}. Change one "
        f"of these: {', '.join(change for change, helps in changes.items() if helps)}. Or measure anyway with --force."
    )
