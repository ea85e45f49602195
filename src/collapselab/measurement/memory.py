"""Whether a measurement fits into memory, by the cost model, before the model runs."""

import os
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from collapselab.errors import ConfigError
from collapselab.measurement.cost import Job, Memory, measuring
from collapselab.models.sizes import Architecture, architecture_of
from collapselab.records.options import Options

MEMINFO = Path("/proc/meminfo")
CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)
"""Files with what a container may use, uses, and could give back; for both versions of control groups."""


def check_memory(model: nn.Module, job: Job, device: torch.device, *, name: str) -> None:
    """ConfigError if the measurement needs more memory than is free, with what takes it and what to change."""
    architecture = _sizes(model)
    if architecture is None:
        return
    sharing = int(os.environ.get("LOCAL_WORLD_SIZE", job.processes))  # processes of this machine
    on_host = sharing * _host_bytes(measuring(architecture, job).memory, device)
    free = free_host_bytes()
    if free is not None and on_host > free:
        raise ConfigError(_refusal(name, architecture, job, on_host, free, f"of {_what(job)}", device))
    if device.type == "cuda":
        needed, free = _device_bytes(measuring(architecture, job).memory), free_device_bytes(device)
        if needed > free:
            raise ConfigError(_refusal(name, architecture, job, needed, free, f"on {device} of {_what(job)}", device))


def free_host_bytes() -> int | None:
    """Memory that the system can still give to this process, None where that is not known."""
    limits = [_available(), *(_left_in_cgroup(*map(Path, files)) for files in CGROUPS)]
    return min((free for free in limits if free is not None), default=None)


def free_device_bytes(device: torch.device) -> int:
    """Memory of a CUDA device that is free, or that this process has taken and does not use."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + unused


def _host_bytes(memory: Memory, device: torch.device) -> float:
    return memory.host if device.type == "cuda" else max(memory.host, _device_bytes(memory))


def _device_bytes(memory: Memory) -> float:
    return memory.peak - memory.model  # the model is loaded already


def _refusal(
    name: str, architecture: Architecture, job: Job, needed: float, free: float, what: str, device: torch.device
) -> str:
    """What is missing, what takes it, and what each change would leave."""
    changes = []
    for words, options in _changes(job).items():
        memory = measuring(architecture, replace(job, options=options)).memory
        left = _device_bytes(memory) if device.type == "cuda" else _host_bytes(memory, device)
        changes.append(f"{words} ({_gb(left)})")
    changes += ["--tokens N for fewer tokens, which have fewer classes", "--min-count N"]
    if job.cells:
        changes.append("fewer --contexts or a larger --min-uses")
    if job.processes == 1 or not job.options.shard_classes:
        changes.append("--shard-classes with torchrun on several machines")
    return (
        f"{name}: needs about {_gb(needed)} of memory beside the model, but {_gb(free)} are free. Most of it is tables "
        f"{what}. Change one of these: {', '.join(changes)}. Or measure anyway with --force."
    )


def _what(job: Job) -> str:
    layers = "all layers" if job.options.layers == "all" else "the last layer"
    null = ", each twice for the null" if job.options.null else ""
    cells = f", and {sum(job.cells):,} cells of contexts" if job.cells else ""
    return f"{job.kept or 0:,} classes at {layers}{null}{cells}"


def _changes(job: Job) -> dict[str, Options]:
    """Options that need less memory, each by its words."""
    last = {"--layers last": replace(job.options, layers="last")} if job.options.layers == "all" else {}
    null = {"--no-null": replace(job.options, null=False)} if job.options.null else {}
    resamples = {"no --bootstrap": replace(job.options, bootstrap=0)} if job.options.bootstrap else {}
    return {**last, **null, **resamples}


def _sizes(model: nn.Module) -> Architecture | None:
    """The sizes of a model; None if it is not built like those of the library."""
    try:
        return architecture_of(model)
    except (AttributeError, TypeError):
        return None


def _available() -> int | None:
    try:
        lines = MEMINFO.read_text().splitlines()
    except OSError:
        return None
    fields = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(fields[0][1]) * 1024 if fields else None


def _left_in_cgroup(limit: Path, usage: Path, stat: Path) -> int | None:
    """What a container's limit leaves; pages of files that it could drop count as free."""
    try:
        bound, used, lines = limit.read_text().strip(), int(usage.read_text()), stat.read_text().splitlines()
    except (OSError, ValueError):
        return None
    if not bound.isdigit():  # "max": no limit
        return None
    droppable = [int(line.split()[1]) for line in lines if line.startswith(("inactive_file ", "total_inactive_file "))]
    return max(0, int(bound) - used + max(droppable, default=0))


def _gb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 5e7 else f"{size / 1e6:,.1f} MB"
