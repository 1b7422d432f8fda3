"""Graphs: what is launched inside `capture()` is recorded, then launched again at one call.

Recording is the driver's stream capture, through cuda.core's graph builder.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kernelmill.errors import DeviceError
from kernelmill.runtime.cuda.device import cuda_device
from kernelmill.runtime.cuda.driver import translated
from kernelmill.runtime.cuda.stream import as_stream, core_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Graph", "capture"]


class Graph:
    """A recording: `builder` while it is made, then `launch` as often as wanted.

    Arrays used in it must live as long as it is launched; those that `keep` was given do.

    Examples
    --------
    >>> import kernelmill as km
    >>> def replay(graph: km.Graph, stream, turns):
    ...     for _ in range(turns):
    ...         graph.launch(stream)
    """

    __slots__ = ("_graph", "_kept", "builder")

    def __init__(self, builder: Any) -> None:  # Any: cuda.core's GraphBuilder
        self.builder = builder
        self._graph: Any = None  # Any: cuda.core's Graph
        self._kept: list[object] = []

    def keep(self, *objects: object) -> None:
        """Hold arrays as long as the graph lives."""
        self._kept += objects

    def launch(self, stream: object) -> None:
        """Do all that was recorded, on a stream.

        Raises
        ------
        DeviceError
            The recording is not finished, or the driver refuses.
        """
        if self._graph is None:
            raise DeviceError(
                "this graph is still being recorded, or its recording failed",
                hint="launch it behind the `with capture()` block",
            )
        with translated("launch a graph"):
            self._graph.launch(core_stream(as_stream(stream)))

    def finish(self) -> None:
        """End the recording; `capture` calls it."""
        with translated("finish the recording of a graph"):
            self._graph = self.builder.end_building().complete()


@contextmanager
def capture(device: int = 0) -> Iterator[Graph]:
    """Record what is launched on `graph.builder` inside the block.

    Raises
    ------
    DeviceError
        There is no device, or something in the block cannot be recorded.

    Examples
    --------
    >>> import kernelmill as km
    >>> def twice_in_one(config, kernel, x):  # a kernel and an array on the GPU
    ...     with km.capture() as graph:
    ...         km.launch(graph.builder, config, kernel, x)
    ...         km.launch(graph.builder, config, kernel, x)
    ...     graph.keep(x)
    ...     return graph
    """
    on = cuda_device(device)
    on.set_current()
    with translated("record a graph"):
        builder = on.core.create_graph_builder().begin_building()
    graph = Graph(builder)
    try:
        yield graph
    except BaseException:
        builder.close()
        raise
    graph.finish()
