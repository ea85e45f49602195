"""A simulated accelerator: tensors that claim to be on the device `sim`, and a count of what makes the host wait.

No GPU is needed to find a tensor on the wrong device or a line that waits for the device. Inside

    with simulated_device() as device:
        moments.update(features.to("sim"), labels.to("sim"))
    device.waits        # {"core/moments.py:88 _local_scalar_dense": 1, …}

tensors on `sim` hold their numbers in host memory. An operation that mixes them with host tensors of one or more
dimensions raises, as on a real device. Copies to the host, `item`, `nonzero`, boolean indexing and the like work, and
each is counted under the line of the package that asked for it. `float64=False` refuses that type, as MPS does.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _DummyPrivateUse1Hook,
    _setup_privateuseone_for_python_backend,
)

aten = torch.ops.aten
WAITING = {
    aten._local_scalar_dense, aten.is_nonzero, aten.equal, aten.nonzero, aten.masked_select, aten.bincount,
    aten._unique, aten._unique2, aten.unique_dim, aten.unique_consecutive, aten.unique_dim_consecutive,
}  # fmt: skip
"""Operations whose result, or its shape, the host must know before it can go on."""
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._unsafe_index}
"""These wait only for boolean indices, and take indices from the host."""
SHAPES = {
    aten.sym_size: Tensor.size, aten.size: Tensor.size, aten.sym_stride: Tensor.stride, aten.stride: Tensor.stride,
    aten.sym_storage_offset: Tensor.storage_offset, aten.storage_offset: Tensor.storage_offset, aten.dim: Tensor.dim,
    aten.sym_numel: Tensor.numel, aten.numel: Tensor.numel, aten.is_contiguous: Tensor.is_contiguous,
}  # fmt: skip
"""Questions about the shape, which an operation in place may have changed."""


class SimulatedTensor(torch.Tensor):
    """A tensor on the simulated device; `raw` holds its numbers."""

    raw: Tensor
    lease: "_Lease"

    @staticmethod
    def __new__(cls, raw: Tensor) -> "SimulatedTensor":
        made: SimulatedTensor = torch.Tensor._make_wrapper_subclass(
            cls, raw.size(), strides=raw.stride(), storage_offset=raw.storage_offset(), dtype=raw.dtype,
            device="sim:0", requires_grad=False, dispatch_sizes_strides_policy="strides",
        )  # fmt: skip
        made.raw = raw
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (asked := SHAPES.get(func.overloadpacket)) is not None:
            return asked(*tree_map(_raw, args))
        raise RuntimeError(f"{func} on a simulated tensor outside simulated_device()")

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert a tensor of the device sim to numpy; use Tensor.cpu() first")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"SimulatedTensor({tuple(self.shape)}, {self.dtype})"


class SimulatedDevice(TorchDispatchMode):
    """Runs every operation of its thread; see the module."""

    def __init__(self, *, float64: bool = True) -> None:
        super().__init__()
        self.float64 = float64
        self.waits: Counter[str] = Counter()
        self.bytes = self.peak = 0
        self._storages: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (shape := SHAPES.get(func.overloadpacket)) is not None:
            return shape(*tree_map(_raw, args))
        kwargs = kwargs or {}
        given = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor)]
        on_device = [one for one in given if isinstance(one, SimulatedTensor)]
        asked = kwargs.get("device")
        asked_type = None if asked is None else torch.device(asked).type
        packet = func.overloadpacket
        if not on_device and asked_type != "sim":
            return func(*args, **kwargs)
        if asked_type == "sim":
            kwargs = {**kwargs, "device": torch.device("cpu")}
        if "pin_memory" in kwargs:
            kwargs = {**kwargs, "pin_memory": False}
        if packet is aten.copy_ or packet is aten._to_copy:
            source = args[1] if packet is aten.copy_ else args[0]
            target_on_device = isinstance(args[0], SimulatedTensor) if packet is aten.copy_ else asked_type != "cpu"
            if isinstance(source, SimulatedTensor) and not target_on_device:
                self._wait(func)
        else:
            target_on_device = True
            self._check_places(func, packet, args, given)
        if packet in WAITING or (packet in INDEXING and _has_mask(args)):
            self._wait(func)
        by_raw = {id(one.raw): one for one in on_device}
        result = func(*tree_map(_raw, args), **tree_map(_raw, kwargs))
        return tree_map(lambda one: self._wrapped(one, by_raw, target_on_device), result)

    def _check_places(self, func: Any, packet: Any, args: Any, given: list[Tensor]) -> None:
        host = [one for one in given if not isinstance(one, SimulatedTensor) and one.dim() > 0]
        if packet in INDEXING and isinstance(args[0], SimulatedTensor):
            indices = {id(one) for one in args[1] if one is not None}
            host = [one for one in host if id(one) not in indices]
        if host and len(host) < len(given):
            raise RuntimeError(f"{func}: expected all tensors to be on the same device, but found both sim:0 and cpu")

    def _wrapped(self, one: Any, by_raw: dict[int, SimulatedTensor], on_device: bool) -> Any:
        if not isinstance(one, Tensor) or isinstance(one, SimulatedTensor):
            return one
        if id(one) in by_raw:
            return by_raw[id(one)]
        if not on_device:
            return one
        if one.dtype == torch.float64 and not self.float64:
            raise TypeError("the simulated device has no float64")
        made = SimulatedTensor(one)
        self._hold(made)
        return made

    def _hold(self, made: SimulatedTensor) -> None:
        storage = made.raw.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        self._storages[key] += 1
        if self._storages[key] == 1:
            self.bytes += size
            self.peak = max(self.peak, self.bytes)
        made.lease = _Lease(self, key, size)

    def _release(self, key: int, size: int) -> None:
        self._storages[key] -= 1
        if not self._storages[key]:
            self.bytes -= size

    def _wait(self, func: Any) -> None:
        self.waits[f"{_line_of_package()} {func.overloadpacket.__name__}"] += 1


class _Lease:
    """Gives the bytes of a tensor back when the tensor goes; a weak reference would keep modules from being moved."""

    def __init__(self, device: SimulatedDevice, key: int, size: int) -> None:
        self.device, self.key, self.size = device, key, size

    def __del__(self) -> None:
        self.device._release(self.key, self.size)


def _raw(one: Any) -> Any:
    return one.raw if isinstance(one, SimulatedTensor) else one


def _has_mask(args: Any) -> bool:
    return any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1])


def _line_of_package() -> str:
    frame = sys._getframe(2)
    while frame is not None:
        if "/collapselab/" in frame.f_code.co_filename:
            return f"{frame.f_code.co_filename.rpartition('/collapselab/')[2]}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "elsewhere"


class _State:
    is_registered = is_active = False


class _Hook(_DummyPrivateUse1Hook):
    def is_available(self) -> bool:
        return _State.is_active


class _Module(_DummyBackendModule):
    def is_available(self) -> bool:
        return _State.is_active

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


@contextmanager
def simulated_device(*, float64: bool = True) -> Iterator[SimulatedDevice]:
    """Make the device `sim` available in this block, and yield its counters."""
    if not _State.is_registered:
        _setup_privateuseone_for_python_backend("sim", backend_module=_Module(), hook=_Hook())
        _State.is_registered = True
    swaps = torch.__future__.get_swap_module_params_on_conversion()
    torch._C._set_only_lift_cpu_tensors(True)
    torch.__future__.set_swap_module_params_on_conversion(True)
    _State.is_active = True
    try:
        with SimulatedDevice(float64=float64) as device:
            yield device
    finally:
        _State.is_active = False
        torch.__future__.set_swap_module_params_on_conversion(swaps)
        torch._C._set_only_lift_cpu_tensors(False)
