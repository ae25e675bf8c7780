"""A training step recorded once as a CUDA graph and replayed.

A step is some two hundred kernels of a few microseconds each. Launched one by one they wait
for Python; a graph is one launch for all of them. It reads and writes the memory that it was
recorded with, so batches are copied into a buffer of its own.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

__all__ = ["RecordedStep"]

# Before a recording the libraries must have chosen their kernels and workspaces.
WARM_UPS = 3

# torch allows one recording at a time in a process, whatever the device.
_recording = threading.Lock()


class RecordedStep:
    """``trainer.step`` for batches of one shape (b, d), on a CUDA device.

    The trainer's state is the same after the recording as before, and after a recording that
    ends in a RuntimeError.
    """

    def __init__(self, trainer: Any, shape: tuple[int, ...]):
        self.batch = trainer.vector.new_zeros(shape)
        state = trainer.state()
        with torch.cuda.device(self.batch.device), _recording:
            caller, side = torch.cuda.current_stream(), torch.cuda.Stream()
            side.wait_stream(caller)
            try:
                with torch.cuda.stream(side):
                    for _ in range(WARM_UPS):
                        trainer.step(self.batch)
                self._graph = torch.cuda.CUDAGraph()
                # By default torch records on a stream of the device that it recorded on first.
                # "thread_local": other threads may use the device meanwhile.
                with torch.cuda.graph(
                    self._graph, stream=side, capture_error_mode="thread_local"
                ):
                    self.loss = trainer.step(self.batch)
            finally:
                torch.cuda.set_stream(caller)  # which a recording that failed does not
                caller.wait_stream(side)
                trainer.restore(state)

    def __call__(self, batch: Tensor) -> Tensor:
        """Take one step on a batch; return its loss, which the next step overwrites."""
        self.batch.copy_(batch)
        self._graph.replay()
        return self.loss
