"""The process in which `check` loads a variant. Imports nothing of kernelmill; see `check_run.py`.

Each line that it has to say begins with a record separator, so that prints of kernels do no harm.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any  # Any: torch and tvm_ffi, which may be absent

if TYPE_CHECKING:
    from collections.abc import Callable


def tell(what: str, **facts: object) -> None:
    """Write one line, at once: the next step may be the last."""
    sys.stdout.write("\x1e" + json.dumps({"what": what, **facts}) + "\n")
    sys.stdout.flush()


def attempt(step: str, work: Callable[[], Any]) -> Any:
    """Do a step; whatever it raises is told, and ends the process in order."""
    tell("begin", step=step)
    try:
        return work()
    except BaseException as error:  # noqa: BLE001 - a kernel may raise anything, SystemExit too
        text = f"{type(error).__name__}: {error}"
        tell("failed", step=step, error=text.strip()[:1000])
        sys.stdout.flush()
        os._exit(0)


def load_kernel(path: Path, name: str) -> Any:
    """Import the variant as loaders do."""
    spec = importlib.util.spec_from_file_location(name, path / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def schemas_of(torch: Any) -> dict[str, Any]:
    """Return the operators that are registered, by name and overload."""
    return {f"{s.name}.{s.overload_name}": s for s in torch._C._jit_get_all_schemas()}  # noqa: SLF001


def nonsense(torch: Any, kind: str) -> Any:
    """Return an argument of a type of torch that no operator can want."""
    if kind == "Tensor":
        return torch.zeros((2, 1, 3, 1, 2, 1, 2), dtype=torch.complex128)
    table = {
        "int": -1,
        "float": float("nan"),
        "number": -1,
        "bool": True,
        "str": "",
        "Device": "cpu",
    }
    if kind.startswith("Optional"):
        return None
    if kind.startswith("List[Tensor"):
        return [nonsense(torch, "Tensor")]
    return [] if kind.startswith("List") else table.get(kind)


def provoke(name: str, call: Callable[[], Any], *, told: bool = True) -> None:
    """Call an operator wrongly: an exception is what belongs there."""
    tell("call", name=name)
    try:
        call()
    except Exception:  # noqa: BLE001 - the one thing that is asked for, of any kind
        return
    if told:
        tell("accepted", name=name)


def provoke_torch(torch: Any, before: dict[str, Any], name: str) -> None:
    """Call every operator that the kernel brought."""
    new = {key: schema for key, schema in schemas_of(torch).items() if key not in before}
    foreign = sorted({s.name for s in new.values() if not s.name.startswith(f"{name}::")})
    if foreign:
        tell("foreign", names=foreign)
    for schema in new.values():
        space, _, function = schema.name.partition("::")
        operator = getattr(getattr(torch.ops, space), function)
        arguments = [nonsense(torch, str(a.type)) for a in schema.arguments if not a.kwarg_only]
        provoke(schema.name, partial(operator, *arguments), told=bool(arguments))


def _call(module: Any, function: str) -> Any:
    return getattr(module, function)()


def run(asked: dict[str, Any]) -> None:
    """Load and provoke what was asked for."""
    torch: Any = None
    before: dict[str, Any] = {}
    if asked["kind"] == "torch":
        torch = attempt("framework", lambda: __import__("torch"))
        before = schemas_of(torch)
    elif asked["kind"] == "tvm-ffi":
        tvm_ffi: Any = attempt("framework", lambda: __import__("tvm_ffi"))
    if asked["library"]:
        # Names the symbol that is missing, which torch's own loader does not.
        attempt("load", lambda: ctypes.CDLL(asked["library"]))
    attempt("import", lambda: load_kernel(Path(asked["path"]), asked["id"]))
    if torch is not None:
        provoke_torch(torch, before, asked["id"])
    elif asked["kind"] == "tvm-ffi":
        module = attempt("load", lambda: tvm_ffi.load_module(asked["library"]))
        for function in asked["functions"]:
            provoke(function, partial(_call, module, function))


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
    sys.stdout.flush()
    # Destructors of strangers' libraries are not what is checked.
    os._exit(0)
