"""A family of one dimension that copies what one feed reads to another: feeds without algorithms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelmill.algorithms.costs import Cost
from kernelmill.algorithms.feeds import (
    feeds_functions,
    feeds_scope,
    moved_feeds,
    read_feeds,
    write_feeds,
)
from kernelmill.algorithms.plan import Bound, Scope, build, execute
from kernelmill.algorithms.source import assemble, text_of
from kernelmill.runtime.backend import KernelSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.feed_text import FeedText
    from kernelmill.algorithms.feeds import Feed

HOST = "km::copy(call, in, out);"
HOST_LOOP = """
namespace km {
template <class In, class Out> KM_INL void copy(const Call* call, const In& in, const Out& out) {
  for (i64 i = 0; i < call->shape[0]; i++) out(i, (typename Out::type)in(i));
}
}
"""
DEVICE = """
typedef km::Call<{operands}, {room}> call_type;
KM_EXPORT void __launch_bounds__(128) km_kernel(const __grid_constant__ call_type call) {{
  const {reading.type} in = {reading.made};
  const {writing.type} out = {writing.made};
  for (km::i64 i = (km::i64)blockIdx.x * 128 + threadIdx.x; i < call.elements; i += (km::i64)gridDim.x * 128)
    out(i, in(i));
}}
"""


def copy(x: Any, out: Any = None, *, length: int | None = None) -> Any:
    """Copy element by element; `length` for what has no end."""
    call = moved_feeds((x,), out, "x")
    feeds = read_feeds(call.inputs, ("x",), "transform")
    (source,) = feeds.read
    count = length if source.length is None else source.length
    assert count is not None
    (sink,), result = write_feeds(call.out, (source.type,), feeds, length=count)
    source = source.apart_from((sink,), elementwise=True)
    scope = Scope(feeds_scope(source, sink))
    offsets = (*scope.offsets, 0, 0)
    target = feeds.backend.target
    places = len(source.arguments)
    reading = source.text("In", operand=0, captures=offsets[0])
    behind = offsets[1 if source.operator else 0]
    writing = sink.text("Out", operand=places, captures=behind)
    arguments = (*source.arguments, *sink.arguments)
    kernel = _text(target, reading, writing, len(arguments), scope.size)
    built = build(
        ("copy", source.key, sink.key), "copy", scope, Cost(source.nbytes + 1, 1), lambda: kernel,
        backend=feeds.backend,
    )  # fmt: skip
    found = execute(
        Bound(
            built=built,
            functions=feeds_functions(source, sink),
            shape=(count,),
            views=tuple(a.view for a in arguments),
            strides=(*source.strides, *sink.strides),
            elements=count,
            workspace=0,
            result=result,
            finish=call.back if call.returns else None,
        )
    )
    return found if call.returns or out is None else out


def _text(
    target: str, reading: FeedText, writing: FeedText, operands: int, room: int
) -> KernelSource:
    printed = [*reading.printed, *writing.printed]
    text = reading.text + writing.text
    if target == "host":
        launch = f"km::copy(call, {reading.made}, {writing.made});"
        return assemble("copy", reading.includes, printed, launch, HOST_LOOP + text)
    body = DEVICE.format(operands=operands, room=max(16, room), reading=reading, writing=writing)
    files = ["transform.cuh", *reading.includes]
    return KernelSource("copy", text_of("copy", files, printed, text + body), 128)


def plain(feeds: Sequence[Feed]) -> list[bool]:
    """Return which feeds need no text."""
    return [feed.is_plain for feed in feeds]
