"""What differs between devices: which have no float64, and how much of the work is done at once."""

import torch

WITHOUT_FLOAT64 = ["mps"]
"""Types of devices that have no float64: what is summed in it, the class moments above all, goes to the CPU."""

WITH_MEMORY = ["cuda", "xpu"]
"""Types with memory of their own, which PyTorch can tell the size of."""


def exact_device(device: torch.device) -> torch.device:
    """Return the device itself, or the CPU where it has no float64."""
    return torch.device("cpu") if device.type in WITHOUT_FLOAT64 else device


def by_device(sizes: dict[str, int], device: torch.device) -> int:
    """Return the size for a device: that of "cpu", or that of "accelerator" for every other."""
    return sizes["cpu" if device.type == "cpu" else "accelerator"]
