"""Rules of `check` about the Python side: how operators are registered. Runs none of it.

Every build has a namespace of its own, so that two versions of a kernel live in one process;
a name that is written out belongs to all of them at once.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from kernelmill.package.check_subject import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernelmill.package.check_subject import Subject

__all__ = ["PYTHON_RULES"]

# Functions of torch.library whose first argument names an operator.
_REGISTERING: Final = (
    "custom_op", "triton_op", "register_kernel", "register_fake", "register_autograd",
    "register_vmap", "register_torch_dispatch", "define", "impl", "impl_abstract",
)  # fmt: skip
_PREFIX: Final = "add_op_namespace_prefix"


def _registration(subject: Subject) -> Iterator[Finding]:
    for path in sorted(subject.path.rglob("*.py")):
        if path.is_symlink() or not path.is_file():
            continue
        name = path.relative_to(subject.path).as_posix()
        try:
            tree = ast.parse(path.read_bytes(), filename=name)
        except (SyntaxError, ValueError) as error:  # ValueError: a NUL in the text
            message = f"it is no Python: {error}"
            yield Finding(
                "python", "error", name, message, "importing the kernel fails for everybody"
            )
            continue
        yield from _calls(tree, name)


def _calls(tree: ast.AST, name: str) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = _last_name(node.func)
        if function == "Library" and _is_torch_library(node.func) and _written_out(node):
            yield _finding(name, node, "Library", _written_out(node))
        elif function in _REGISTERING and _may_register(node.func):
            written = _written_out(node)
            if written:
                yield _finding(name, node, function, written)


def _finding(file: str, node: ast.Call, function: str, written: str) -> Finding:
    return Finding(
        "registration",
        "error",
        f"{file}:{node.lineno}",
        f"{function}({written!r}) names an operator without the namespace of this build",
        "a second build or version of the kernel in one process fails, or takes this one's place",
        f'{function}({_PREFIX}("{written.rpartition("::")[2]}")), from `._ops`',
    )


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_torch_library(node: ast.expr) -> bool:
    """Tell `torch.library.Library` and a bare `Library` from methods of other things."""
    return isinstance(node, ast.Name) or "library" in ast.unparse(node).split(".")[:-1]


def _may_register(node: ast.expr) -> bool:
    """Leave out methods such as `op.register_fake`, which know their operator."""
    return isinstance(node, ast.Name) or "library" in ast.unparse(node).split(".")[:-1]


def _written_out(node: ast.Call) -> str:
    """Return the first argument where it is a text that names a namespace."""
    first = (
        node.args[0]
        if node.args
        else next((k.value for k in node.keywords if k.arg == "name"), None)
    )
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    if isinstance(first, ast.JoinedStr):  # f"relu::{name}" is written out as well
        head = first.values[0] if first.values else None
        fixed = isinstance(head, ast.Constant) and "::" in str(head.value)
        return ast.unparse(first) if fixed else ""
    return ""


PYTHON_RULES: Final[tuple[Callable[[Subject], Iterator[Finding]], ...]] = (_registration,)
