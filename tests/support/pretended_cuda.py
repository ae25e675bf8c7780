"""A pretended CUDA machine, where code for GPUs shows how it mixes devices or precisions.

Tensors of the CPU are wrapped in tensors that say they are on "cuda:0" or "cuda:1", in the
thread that enters the machine. The arithmetic is the CPU's, autocast included. An error is
raised where tensors of two devices meet, where memory ends, and where one is pickled.
"""

import contextlib
import weakref
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
autocast = torch.autocast
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}


class CudaTensor(torch.Tensor):
    """A tensor of the CPU, ``content``, that says it is on a CUDA device."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: self.content.pretended_device)
    data = property(
        lambda self: self.detach(), lambda self, new: setattr(self, "content", new.content)
    )

    @staticmethod
    def __new__(cls, content, device):
        PretendedCuda.current.allocate(content, device)
        layout = {"strides": content.stride(), "storage_offset": content.storage_offset()}
        make = torch.Tensor._make_wrapper_subclass
        tensor = make(cls, content.size(), dtype=content.dtype, **layout)
        tensor.content = content
        return tensor

    def __repr__(self, **_):
        return f"CudaTensor({self.content}, device='{self.device}')"

    def __reduce_ex__(self, protocol):
        raise TypeError(f"A tensor on {self.device} is pickled.")

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
        raise RuntimeError(f"{function} of a pretended CUDA device outside of the machine.")


class PretendedCuda:
    """The machine.

    Each device has ``memory`` bytes, any number if None, and ``has_float64``, unlike Apple's.
    With ``is_forked`` the process behaves as the forked child of one that has used CUDA.
    """

    current = None

    def __init__(self, n_devices=1):
        self.memory, self.has_float64, self.is_forked = None, True, False
        self._n_devices, self._index = n_devices, 0
        self._contents = weakref.WeakValueDictionary()  # by their id

    @contextlib.contextmanager
    def on(self):
        """Make torch see the machine."""
        cuda = {
            "is_available": lambda: not self.is_forked,
            "_is_in_bad_fork": lambda: self.is_forked,
            "device_count": lambda: self._n_devices,
            "_lazy_init": bool,
            "current_device": lambda: self._index,
            "set_device": lambda device: setattr(self, "_index", device),
            "empty_cache": bool,
            "mem_get_info": lambda device=None: (self.memory or 2**34,) * 2,
        }
        # Else Module.to would swap the inside of a parameter, which a wrapper does not have.
        overwrite = "get_overwrite_module_params_on_conversion"
        with (
            patch.multiple(torch.cuda, **cuda),
            patch.object(torch, "autocast", lambda _, *a, **k: autocast("cpu", *a, **k)),
            patch.object(torch.__future__, overwrite, lambda: True),
            patch.object(PretendedCuda, "current", self),
            _Dispatch(),
            _Functions(),
        ):
            yield self

    def device(self, name):
        """Return a device; a CUDA device has an index, the current one by default."""
        device = torch.device(name)
        bare = device.type == "cuda" and device.index is None
        return torch.device("cuda", self._index) if bare else device

    def used(self, index=0):
        """Bytes in use on a device."""
        contents = [c for c in self._contents.values() if c.pretended_device.index == index]
        storages = [content.untyped_storage() for content in contents]
        return sum({memory.data_ptr(): memory.nbytes() for memory in storages}.values())

    def allocate(self, content, device):
        """Take a tensor into account from now on."""
        if content.dtype == torch.float64 and not self.has_float64:
            raise TypeError("Cannot convert a tensor to float64: the device has none.")
        content.pretended_device = device
        self._contents[id(content)] = content
        if self.memory is not None and self.used(device.index) > self.memory:
            del self._contents[id(content)]
            raise torch.cuda.OutOfMemoryError(f"CUDA has more than {self.memory} bytes in use.")


class _Functions(TorchFunctionMode):
    """Rewrites calls in which torch asks a wrapper for its device, and hears of the CPU."""

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        if function is torch.Tensor.cpu:
            return _copied(arguments[0], "cpu")
        if function is torch.Tensor.to:
            copy = keywords.pop("copy", False)
            device, dtype, *_ = torch._C._nn._parse_to(*arguments[1:], **keywords)
            return _copied(arguments[0], device, dtype, copy)
        if function in (torch.as_tensor, torch.tensor, torch.asarray):
            device, data = keywords.pop("device", None), arguments[0]
            if not isinstance(data, CudaTensor):
                data = function(*arguments, **keywords)
            return _copied(data, device, keywords.get("dtype"))
        return function(*arguments, **keywords)


def _copied(tensor, device=None, dtype=None, copy=False):
    """Return a tensor on a device, or the tensor itself where nothing changes."""
    device = PretendedCuda.current.device(device or tensor.device)
    if device == tensor.device and dtype in (None, tensor.dtype) and not copy:
        return tensor
    return aten._to_copy.default(tensor, dtype=dtype, device=device)


class _Dispatch(TorchDispatchMode):
    """Runs each operation on the contents, after a look at the devices."""

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        keywords, leaves = dict(keywords or {}), tree_leaves((arguments, keywords))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        device = next((t.device for t in tensors if isinstance(t, CudaTensor)), None)
        target = keywords.get("device")
        if device and torch._C._current_graph_task_id() != -1:
            target = None  # a backward pass, too, takes a wrapper for a tensor of the CPU
        target = PretendedCuda.current.device(target or device or "cpu")
        if not device and target.type != "cuda":
            return function(*arguments, **keywords)
        self._check_devices(function.overloadpacket, tensors)
        if keywords.get("device"):
            keywords["device"] = torch.device("cpu")
        originals = {id(_unwrapped(tensor)): tensor for tensor in tensors}

        def wrapped(value):
            if not isinstance(value, torch.Tensor) or target.type != "cuda":
                return value
            return originals[id(value)] if id(value) in originals else CudaTensor(value, target)

        with torch.inference_mode(False), torch.no_grad():
            arguments, keywords = tree_map(_unwrapped, (arguments, keywords))
            return tree_map(wrapped, function(*arguments, **keywords))

    def _check_devices(self, operation, tensors):
        # A number of the host may meet any device, and so may an index.
        devices = {str(t.device) for t in tensors if isinstance(t, CudaTensor)}
        if operation not in INDEXING:
            devices |= {str(t.device) for t in tensors if t.ndim}
        if len(devices) > 1 and operation is not aten.copy_:
            raise RuntimeError(f"Not all tensors of {operation} are on one device: {devices}")


def _unwrapped(value):
    return value.content if isinstance(value, CudaTensor) else value
