"""How many threads work has: PyTorch's own, which meet at the end of every operation, or one for each part."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Part = TypeVar("Part")
Done = TypeVar("Done")


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Operations on a CPU begin with this number of threads; afterwards there are as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_threads(work: Callable[[Part], Done], parts: list[Part], device: torch.device) -> Iterator[Done]:
    """Results in the order of the parts, so that sums do not depend on which thread did what.

    On a CPU each core does parts of its own with single-threaded operations. Two dozen operations a part that each
    wait for all cores would cost more, and far more on a machine with other work to do.
    """
    number, inference, grad = torch.get_num_threads(), torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def alike(part: Part) -> Done:
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):  # both are said thread by thread
            return work(part)

    if device.type != "cpu" or number == 1 or len(parts) == 1:
        yield from map(work, parts)
        return
    with threads(1), ThreadPoolExecutor(number) as pool:
        yield from pool.map(alike, parts)
