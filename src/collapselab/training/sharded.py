"""Whether a model's weights are spread over processes, so that one process alone cannot run it."""

from torch import nn

from collapselab.errors import ConfigError


def check_not_sharded(model: nn.Module, *, what: str) -> None:
    """ConfigError that names how the weights are spread over processes; nothing where each process has all of them.

    The first process would never get the parts of the others, which do not take part in a measurement.
    """
    name = _sharding(model)
    if name is not None:
        raise ConfigError(
            f"{what}: the model is trained with {name}, which spreads its weights over processes; measuring needs all "
            "of them in one. Save checkpoints and measure these, or train with DistributedDataParallel or ZeRO-2."
        )


def _sharding(model: nn.Module) -> str | None:
    for module in model.modules():
        if type(module).__name__ == "FullyShardedDataParallel":
            return "FSDP"
    for parameter in model.parameters():
        if type(parameter).__name__ == "DTensor" or type(parameter.data).__name__ == "DTensor":
            return "FSDP2 or tensor parallelism (DTensor)"
        if hasattr(parameter, "ds_id"):
            return "DeepSpeed ZeRO-3"
    return None
