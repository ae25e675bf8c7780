"""A pretended CUDA machine, on which the code for GPUs runs in tests without a GPU.

Tensors of the CPU are wrapped in tensors that say they are on "cuda:0" or "cuda:1". Torch
dispatches on what they say, autocast included; the arithmetic is the CPU's. The machine adds
the rules that a GPU has and a CPU has not, and raises RuntimeError where one is broken:

- tensors of different devices do not meet in an operation;
- memory ends (`PretendedCuda.memory`), with torch's own OutOfMemoryError;
- streams run side by side: what one writes, another may read only after waiting for it;
- a CUDA graph records the operations of one stream on one device and runs none of them; one
  capture at a time; the host cannot wait inside one; a replay repeats what was recorded, in
  the memory of then, which must not have been freed;
- a forked child cannot use CUDA (`PretendedCuda.is_forked`).

Waits of the host for the device are noted in `PretendedCuda.waits`. Not pretended: speed,
rounding, the asynchrony of copies, the caches of the memory allocator, and Triton.

Usage::

    load_guard(folder)  # once a process; compiles for some seconds
    with PretendedCuda() as machine:
        tensor = torch.zeros(3, device="cuda")

Other threads enter ``machine.in_this_thread()`` first, since torch's modes are a thread's own.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
import threading
import weakref
from pathlib import Path
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import cpp_extension
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["NoCompiler", "PretendedCuda", "load_guard"]

aten = torch.ops.aten

# Operations whose result the host needs, so that it waits for the device.
WAITING = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.equal.default,
    aten.unique_dim.default,
    aten._unique2.default,
}
INDEXING = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten._unsafe_index.Tensor,
}
COPYING = {aten.copy_.default, aten._to_copy.default}


class NoCompiler(RuntimeError):
    """The device guard cannot be compiled here."""


def load_guard(folder):
    """Compile ``device_guard.cpp`` into a folder and load it into this process.

    It stays harmless outside `PretendedCuda`: torch goes on to see no CUDA device.

    Raises
    ------
    NoCompiler
        If there is no C++ compiler, or it fails.
    """
    if torch.version.cuda or torch.version.hip:
        raise NoCompiler("this build of torch has a device guard for real GPUs")
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise NoCompiler("neither g++ nor clang++ is installed")
    library = Path(folder) / "device_guard.so"
    includes = [f"-I{path}" for path in cpp_extension.include_paths()]
    source = Path(__file__).with_name("device_guard.cpp")
    options = ["-std=c++20", "-O1", "-shared", "-fPIC", *includes]
    options += [f"-L{path}" for path in cpp_extension.library_paths()]
    command = [compiler, *options, source, "-o", library, "-lc10", "-ltorch_cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoCompiler(f"{compiler} failed: {done.stderr[-300:]}")
    PretendedCuda.guard = ctypes.CDLL(str(library))


class CudaTensor(torch.Tensor):
    """A tensor of the CPU, ``content``, that says it is on a CUDA device."""

    content: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, content, device):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            content.size(),
            strides=content.stride(),
            storage_offset=content.storage_offset(),
            dtype=content.dtype,
            device=device,
        )

    def __init__(self, content, device):
        self.content = content
        _machine().know(self)

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, new):
        self.content = new.content

    def __repr__(self, **_):
        return f"CudaTensor({self.content}, device='{self.device}')"

    def __deepcopy__(self, memo):
        return CudaTensor(self.content.clone(), self.device)

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
        return _machine().run(function, arguments, keywords or {})


class Stream:
    """A queue of operations on one device, and what it has waited for.

    Operations run at once, one after the other. ``seen`` holds how many operations of each
    other stream are known to have ended before the next one here.
    """

    def __init__(self, device=None):
        machine = _machine()
        device = machine.device(device)
        self.device, self.done, self.seen = device, 0, {}
        machine.streams.append(self)

    def wait_stream(self, other):
        for stream, count in {**other.seen, other: other.done}.items():
            self.seen[stream] = max(self.seen.get(stream, 0), count)

    def synchronize(self):
        _machine().wait(f"stream of {self.device}")

    def knows(self, write):
        """Whether a write, (stream, its count), has certainly ended."""
        stream, count = write
        return stream is self or self.seen.get(stream, 0) >= count


class Graph:
    """Stands in for `torch.cuda.CUDAGraph`; `torch.cuda.graph` itself is torch's own."""

    def __init__(self, *_, **__):
        self.operations, self.stream, self.error = [], None, None
        self.inputs, self.created = set(), set()  # places

    def capture_begin(self, *_, **__):
        machine = _machine()
        if machine.capture is not None:
            raise RuntimeError("Another capture is underway in this process.")
        machine.capture, self.stream = self, machine.stream()

    def capture_end(self):
        _machine().capture = None
        if self.error:
            raise RuntimeError(f"CUDA error: {self.error}")

    def record(self, function, arguments, keywords, result, new):
        self.inputs |= _places((arguments, keywords)) - self.created
        self.created |= new
        results = tree_leaves(result) if new else []  # else the operation writes in place
        self.operations.append((function, arguments, keywords, results))

    def replay(self):
        machine = _machine()
        with machine.lock:
            self._replay(machine, machine.stream(self.stream.device))

    def _replay(self, machine, stream):
        if not self.inputs <= machine.places():
            raise RuntimeError("A CUDA graph reads or writes memory that was freed.")
        machine.check_order(stream, self.inputs)
        with torch._C.DisableTorchFunction():
            for function, arguments, keywords, results in self.operations:
                repeated = function(*arguments, **keywords)
                for old, new in zip(results, tree_leaves(repeated), strict=False):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)
        machine.note_writes(stream, self.inputs | self.created)


class PretendedCuda:
    """The machine; a context manager that makes torch see it.

    Parameters
    ----------
    n_devices : int, default=1

    Attributes
    ----------
    memory : int or None
        Bytes that each device has; None for any number.
    has_float64 : bool
        Whether devices know float64; Apple's do not.
    is_forked : bool
        Whether this process is to behave as the forked child of one that has used CUDA.
    waits : list of str
        What the host has waited for.
    capture : Graph or None
        What is being recorded.
    """

    current = None
    guard = None  # what `load_guard` has loaded

    def __init__(self, n_devices=1):
        self.n_devices = n_devices
        self.memory, self.has_float64, self.is_forked = None, True, False
        self.waits, self.capture, self.streams, self.writes = [], None, [], {}
        self._tensors = weakref.WeakValueDictionary()  # wrappers, by their id
        self._contents = weakref.WeakValueDictionary()  # what they wrap, and graphs hold
        self._local, self.lock = threading.local(), threading.RLock()

    def __enter__(self):
        if PretendedCuda.guard is None or PretendedCuda.current is not None:
            raise RuntimeError("Call load_guard first, and enter one PretendedCuda at a time.")
        self._stack = contextlib.ExitStack()
        PretendedCuda.current = self
        self._stack.callback(setattr, PretendedCuda, "current", None)
        self._defaults = [Stream(index) for index in range(self.n_devices)]
        cuda = {
            "is_available": lambda: not self.is_forked and self.n_devices > 0,
            "is_initialized": lambda: not self.is_forked,
            "_is_in_bad_fork": lambda: self.is_forked,
            "device_count": lambda: self.n_devices,
            "_lazy_init": self._initialize,
            "is_bf16_supported": lambda *_, **__: True,
            "current_device": lambda: self._initialize() or self._index(),
            "set_device": lambda device: setattr(self._local, "index", _index(device)),
            "_exchange_device": self._exchange,
            "_maybe_exchange_device": self._exchange,
            "Stream": Stream,
            "set_stream": self._set_stream,
            "current_stream": self.stream,
            "default_stream": lambda device=None: self._defaults[self.device(device).index],
            "synchronize": lambda device=None: self.wait("everything"),
            "empty_cache": lambda: None,
            "CUDAGraph": Graph,
            "is_current_stream_capturing": lambda: self._is_captured(self.stream()),
            "memory_allocated": lambda device=None: self.used(self.device(device).index),
            "mem_get_info": lambda device=None: (self.memory or 2**34,) * 2,
        }
        patches = [mock.patch.object(torch.cuda, name, new) for name, new in cuda.items()]
        patches += [
            mock.patch.object(torch.cuda.graph, "default_capture_stream", None),
            mock.patch.object(torch._C, "_host_emptyCache", bool, create=True),
            mock.patch.object(torch.cuda.amp.common, "amp_definitely_not_available", bool),
            mock.patch.object(torch.Tensor, "pin_memory", lambda tensor, *_: tensor),
        ]
        for patch in patches:
            self._stack.enter_context(patch)
        self.guard.pretend_cuda(True)
        self._stack.callback(self.guard.pretend_cuda, False)
        # Else Module.to would swap the inside of a parameter, which a wrapper does not have.
        overwrite = torch.__future__.set_overwrite_module_params_on_conversion
        overwrite(True)
        self._stack.callback(overwrite, False)
        self._stack.enter_context(self.in_this_thread())
        return self

    def __exit__(self, *error):
        return self._stack.__exit__(*error)

    @contextlib.contextmanager
    def in_this_thread(self):
        """Make torch see the machine in another thread, too."""
        single_threaded = torch.autograd.set_multithreading_enabled(False)
        with single_threaded, _Dispatch(), _Functions():
            yield

    def device(self, device=None):
        """Return a device with its index, the current one by default."""
        index = _index(device)
        return torch.device("cuda", self._index() if index is None else index)

    def stream(self, device=None):
        """Return this thread's stream on a device."""
        device = self.device(device)
        return self._streams().get(device.index, self._defaults[device.index])

    def used(self, index=0):
        """Bytes in use on a device."""
        with self.lock:
            contents = list(self._contents.values())
        sizes = {
            _place(content): content.untyped_storage().nbytes()
            for content in contents
            if content.pretended_device.index == index
        }
        return sum(sizes.values())

    def places(self):
        """Memory that live tensors hold."""
        with self.lock:
            return {_place(tensor.content) for tensor in list(self._tensors.values())}

    def know(self, tensor):
        """Take a tensor into account from now on."""
        tensor.content.pretended_device = tensor.device
        with self.lock:
            self._tensors[id(tensor)] = tensor
            self._contents[id(tensor.content)] = tensor.content

    def wait(self, reason):
        """Let the host wait for the device."""
        self.waits.append(reason)
        if self._is_captured(self.stream()):
            message = f"operation not permitted when stream is capturing ({reason})"
            self.capture.error = message
            raise RuntimeError(f"CUDA error: {message}")
        if reason == "everything":
            for stream in self.streams:
                for other in self.streams:
                    stream.wait_stream(other)

    def check_order(self, stream, places):
        """Check that what others have written is there when a stream's next operation runs."""
        for place in places:
            write = self.writes.get(place)
            if write and not stream.knows(write):
                raise RuntimeError("A stream uses memory that another may still be writing.")

    def note_writes(self, stream, places):
        stream.done += 1
        self.writes.update(dict.fromkeys(places, (stream, stream.done)))

    def run(self, function, arguments, keywords):
        """Run an operation that has to do with a device."""
        with self.lock, torch.inference_mode(False), torch._C.DisableTorchFunction():
            return self._run(function, arguments, keywords)

    def _run(self, function, arguments, keywords):
        leaves = tree_leaves((arguments, keywords))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        on_device = [tensor for tensor in tensors if isinstance(tensor, CudaTensor)]
        on_host = [tensor for tensor in tensors if not isinstance(tensor, CudaTensor)]
        target = keywords.get("device")
        target = target if target is None else torch.device(target)
        if target is not None and target.type == "cuda":
            target = self.device(target)
        self._check_devices(function, on_device, on_host)
        reason = _wait(function, arguments, keywords, on_device, on_host, target)
        if reason:
            self.wait(reason)
        result_device = target or (on_device[0].device if on_device else None)
        result_is_ours = result_device is not None and result_device.type == "cuda"
        device = result_device if result_is_ours else on_device[0].device
        stream = self.stream(device)

        records = self._is_captured(stream)
        for tensor in on_device:
            if tensor.device != device:  # torch lets copies between devices wait for both
                stream.wait_stream(self.stream(tensor.device))
        if not records:
            self.check_order(stream, {_place(tensor.content) for tensor in on_device})

        content = tree_map(_unwrap, arguments), tree_map(_unwrap, keywords)
        if target is not None and target.type == "cuda":
            content[1].update(device=torch.device("cpu"))
            content[1].pop("pin_memory", None)
        mutated = [_unwrap(tensor) for tensor in _mutated(function, arguments, keywords)]
        saved = [tensor.clone() for tensor in mutated] if records else []
        result = function(*content[0], **content[1])
        for tensor, before in zip(mutated, saved, strict=False):
            tensor.copy_(before)  # a capture runs nothing
        if function is aten._local_scalar_dense.default:
            return result
        if function is aten._to_copy.default and _places(result) <= _places(content):
            result = result.clone()
        new = _places(result) - _places(content) if result_is_ours else set()
        if result_is_ours:
            self._check_result(result, new, result_device)
        if records:
            self.capture.record(function, *content, result, new)
        else:
            self.note_writes(stream, new | {_place(tensor) for tensor in mutated})
        originals = {id(_unwrap(tensor)): tensor for tensor in tensors}

        def wrap(value):
            if not isinstance(value, torch.Tensor):
                return value
            if id(value) in originals:
                return originals[id(value)]
            return CudaTensor(value, result_device) if result_is_ours else value

        return tree_map(wrap, result)

    def _check_devices(self, function, on_device, on_host):
        if function in COPYING:
            return
        devices = {str(tensor.device) for tensor in on_device}
        if function not in INDEXING:  # which take an index from the host
            devices |= {str(tensor.device) for tensor in on_host if tensor.ndim}
        if len(devices) > 1:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but {function} found at least "
                f"two: {', '.join(sorted(devices))}"
            )

    def _check_result(self, result, new, device):
        results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if not self.has_float64 and any(r.dtype == torch.float64 for r in results):
            raise TypeError(
                "Cannot convert a tensor to float64: the device knows float32 only."
            )
        sizes = {_place(r): r.untyped_storage().nbytes() for r in results}
        size = sum(sizes[place] for place in new)
        if self.memory is not None and size and self.used(device.index) + size > self.memory:
            raise torch.cuda.OutOfMemoryError(
                f"CUDA out of memory. {self.used(device.index)} of {self.memory} bytes are in "
                f"use, {size} more are asked for."
            )

    def _is_captured(self, stream):
        return self.capture is not None and self.capture.stream is stream

    def _initialize(self):
        if self.is_forked:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess.")

    def _index(self):
        return getattr(self._local, "index", 0)

    def _streams(self):
        return self._local.__dict__.setdefault("streams", {})

    def _exchange(self, index):
        before = self._index()
        if index >= 0:
            self._local.index = index
        return before

    def _set_stream(self, stream):
        self._local.index = stream.device.index
        self._streams()[stream.device.index] = stream


class _Dispatch(TorchDispatchMode):
    """Sends operations that make a tensor on a device to the machine."""

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        if torch.is_inference_mode_enabled() and _is_composite(function):
            with _Dispatch():  # elsewhere torch takes these apart on the way here
                return function.decompose(*arguments, **keywords)
        target = keywords.get("device")
        wanted = target is not None and torch.device(target).type == "cuda"
        if wanted or any(isinstance(a, CudaTensor) for a in tree_leaves((arguments, keywords))):
            return _machine().run(function, arguments, keywords)
        return function(*arguments, **keywords)


class _Functions(TorchFunctionMode):
    """Rewrites the calls that would reach for a real device before they are dispatched."""

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        if function is torch.device:
            return function(*arguments, **keywords)
        arguments = tuple(_with_index(argument) for argument in arguments)
        keywords = {name: _with_index(value) for name, value in keywords.items()}
        target = keywords.get("device")
        if function in (torch.as_tensor, torch.tensor, torch.asarray):
            data = arguments[0]
            if isinstance(data, CudaTensor):
                return data.to(target or data.device, keywords.get("dtype") or data.dtype)
            if target is not None and torch.device(target).type == "cuda":
                keywords.pop("device")
                return function(*arguments, **keywords).to(target)
        if function is torch.Tensor.__getitem__ and isinstance(arguments[0], CudaTensor):
            index = arguments[1] if isinstance(arguments[1], tuple) else (arguments[1],)
            index = tuple(torch.tensor(i) if isinstance(i, list) else i for i in index)
            return function(arguments[0], index)
        return function(*arguments, **keywords)


def _machine():
    machine = PretendedCuda.current
    if machine is None:
        raise RuntimeError("A tensor of a pretended CUDA device is used outside PretendedCuda.")
    return machine


def _index(device):
    if device is None or isinstance(device, int):
        return device
    return torch.device(device).index


def _with_index(value):
    if isinstance(value, torch.device) and value.type == "cuda" and value.index is None:
        return _machine().device()
    return str(_machine().device()) if isinstance(value, str) and value == "cuda" else value


def _place(content):
    return content.untyped_storage().data_ptr()


def _is_composite(function):
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(function.name(), "CompositeImplicitAutograd")


def _places(tree):
    return {_place(leaf) for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)}


def _unwrap(value):
    return value.content if isinstance(value, CudaTensor) else value


def _mutated(function, arguments, keywords):
    """Tensors that an operation writes to, by its schema."""
    found = []
    for position, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            late = position >= len(arguments)
            value = keywords.get(argument.name) if late else arguments[position]
            found += [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]
    return found


def _wait(function, arguments, keywords, on_device, on_host, target):
    """Return why the host waits for the device in an operation, or None."""
    if not on_device and function is aten._to_copy.default:
        is_free = keywords.get("non_blocking")
        return None if is_free else f"upload of {tuple(on_host[0].shape)}"
    if not on_device:
        return None
    if function in WAITING:
        return str(function)
    to_host = target is not None and target.type == "cpu"
    if to_host or (function is aten.copy_.default and on_host):
        return "copy between host and device"
    if function in INDEXING:
        index = [leaf for leaf in tree_leaves(arguments[1]) if isinstance(leaf, torch.Tensor)]
        if any(i.dtype in (torch.bool, torch.uint8) for i in index):
            return "boolean index"
        if not all(isinstance(i, CudaTensor) for i in index):
            return "index from the host"
    return None
