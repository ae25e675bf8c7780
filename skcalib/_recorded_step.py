"""A training step recorded once as a CUDA graph and replayed.

A step is some two hundred kernels of a few microseconds each. Launched one by one they wait
for Python; a graph is one launch for all of them. It reads and writes the memory that it was
recorded with, so batches are copied into a buffer of its own.
"""

import torch

__all__ = ["RecordedStep"]

# Before a recording the libraries must have chosen their kernels and workspaces.
WARM_UPS = 3


class RecordedStep:
    """``trainer.step`` for batches of one shape.

    Parameters
    ----------
    trainer : Trainer
        On a CUDA device. Its state is the same after the recording as before.
    shape : tuple of int
        (b, d), of every batch.
    """

    def __init__(self, trainer, shape):
        self.batch = trainer.vector.new_zeros(shape)
        state, device = trainer.state(), self.batch.device
        try:
            with torch.cuda.device(device):
                aside = torch.cuda.Stream()
                aside.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(aside):
                    for _ in range(WARM_UPS):
                        trainer.step(self.batch)
                torch.cuda.current_stream().wait_stream(aside)
                self._graph = torch.cuda.CUDAGraph()
                # Other threads of the process may use the device meanwhile.
                with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                    self.loss = trainer.step(self.batch)
        finally:
            trainer.restore(state)

    def __call__(self, batch):
        """Take one step on a batch; return its loss, which the next step overwrites."""
        self.batch.copy_(batch)
        self._graph.replay()
        return self.loss
