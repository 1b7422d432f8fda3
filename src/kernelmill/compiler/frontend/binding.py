"""Arguments of a call bound to the parameters of a function, as Python binds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmill.compiler.frontend.names import parameters
from kernelmill.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelmill.compiler.frontend import calls
    from kernelmill.compiler.frontend.values import Value
    from kernelmill.compiler.source import FunctionSource
    from kernelmill.errors import SourceSpan

__all__ = ["bind_arguments"]


def bind_arguments(
    name: str,
    source: FunctionSource,
    args: calls.Arguments,
    defaults: Mapping[str, Value],
    place: SourceSpan | None,
) -> dict[str, Value]:
    """Bind positional and keyword arguments to parameters as Python does.

    `place` is shown when they do not fit; None shows the call.
    """
    spec = source.node.args
    extra = spec.vararg or spec.kwarg
    if extra is not None:
        stars = "*" if spec.vararg else "**"
        raise OperatorError(
            f"`{name}` takes `{stars}{extra.arg}`: an operator's arguments are named one by one",
            span=source.span(extra),
            hint="list the arguments: `def f(a, b)`",
        )
    params = parameters(source.node)
    positional = [p.name for p in params if not p.keyword_only]
    if len(args.positional) > len(positional):
        raise OperatorError(
            f"`{name}` takes {_count(len(positional))}, got {len(args.positional)}",
            span=place,
            hint=f"its arguments are ({', '.join(p.name for p in params)})",
        )
    bound = dict(zip(positional, args.positional, strict=False))
    by_name = {p.name for p in params if not p.positional_only}
    for keyword, value in args.keywords.items():
        if keyword not in by_name or keyword in bound:
            fault = " twice" if keyword in bound else ", which it does not have"
            raise OperatorError(
                f"`{name}` gets the argument `{keyword}`{fault}",
                hint=f"its arguments are ({', '.join(p.name for p in params)})",
            )
        bound[keyword] = value
    missing = [p.name for p in params if p.name not in bound and p.name not in defaults]
    if missing:
        raise OperatorError(
            f"`{name}` takes {_count(len(params))}, got {len(bound)}: "
            f"missing {', '.join(f'`{m}`' for m in missing)}",
            span=place,
            hint="pass one input for each argument, or give the argument a default value",
        )
    return {p.name: bound.get(p.name, defaults.get(p.name)) for p in params}  # type: ignore[misc]  # one of both has it


def _count(number: int) -> str:
    return f"{number} argument" if number == 1 else f"{number} arguments"
