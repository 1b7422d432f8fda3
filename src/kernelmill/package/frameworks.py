"""The four ways in which a kernel is loaded: what each adds to a build. Runs no compiler.

torch's stable ABI, classic torch, tvm-ffi, and Python alone ("noarch"): definitions, headers,
libraries that are linked against by name, the file `_ops.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from kernelmill.errors import ToolchainError
from kernelmill.package.headers import cuda_library_headers, torch_headers, tvm_ffi_headers
from kernelmill.package.manifest import TvmFfi
from kernelmill.package.release import Release

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kernelmill.package.headers import HeaderSet
    from kernelmill.package.manifest import Manifest
    from kernelmill.package.variant import Variant

__all__ = ["Binding", "Kind", "binding_of", "kind_of", "ops_text", "python_root"]

Kind = Literal["stable", "classic", "tvm-ffi", "noarch"]

# The stable ABI is compiled with these headers, for whatever older version the manifest targets.
_STABLE_HEADERS: Final = Release.of(2, 13)
_CXX20_SINCE: Final = Release.of(2, 12)
_TORCH_LIBRARIES: Final = ("libc10.so", "libtorch.so", "libtorch_cpu.so")
_TORCH_CUDA_LIBRARIES: Final = ("libc10_cuda.so", "libtorch_cuda.so")


@dataclass(frozen=True, slots=True)
class Binding:
    """What a framework adds to the compilation of a variant.

    `includes` are below the header set; `libraries` are SONAMEs; `suffix` ends the library's name;
    `more` are headers that the framework's own include.
    """

    kind: Kind
    standard: str
    device_standard: str
    defines: tuple[str, ...]
    headers: HeaderSet
    includes: tuple[str, ...]
    libraries: tuple[str, ...]
    suffix: str
    sources: tuple[str, ...]
    flags: tuple[str, ...]
    include: tuple[str, ...]
    more: tuple[HeaderSet, ...] = ()


def kind_of(variant: Variant) -> Kind:
    """Return how a variant is loaded.

    Examples
    --------
    >>> from kernelmill.package.frameworks import kind_of
    >>> from kernelmill.package.variant import Variant
    >>> kind_of(Variant.parse("torch-stable-abi210-cpu-x86_64-linux"))
    'stable'
    """
    if variant.noarch:
        return "noarch"
    kinds: dict[str, Kind] = {"torch-stable-abi": "stable", "torch": "classic"}
    return kinds.get(variant.framework.name, "tvm-ffi")


def binding_of(variant: Variant, manifest: Manifest, toolkit: Sequence[Path] = ()) -> Binding:
    """Return what a variant with machine code is compiled and linked with.

    `toolkit` are the directories of CUDA's headers; what is there need not be fetched.

    Raises
    ------
    ToolchainError, IntegrityError
        The headers cannot be had.
    """
    kind, framework, version = kind_of(variant), manifest.framework, variant.framework.version
    assert kind != "noarch"
    assert version is not None
    cuda = variant.backend.name == "cuda"
    headers = _headers(kind, version)
    torch = ("torch/include", "torch/include/torch/csrc/api/include")
    includes = ("tvm_ffi/include",) if kind == "tvm-ffi" else torch
    libraries = ["libtvm_ffi.so"]
    if kind != "tvm-ffi":
        libraries = [*_TORCH_LIBRARIES, *(_TORCH_CUDA_LIBRARIES if cuda else ())]
    if cuda:
        assert variant.backend.version is not None
        libraries.append(f"libcudart.so.{variant.backend.version.major}")
    modern = kind != "classic" or version >= _CXX20_SINCE
    return Binding(
        kind=kind,
        standard="c++20" if modern else "c++17",
        device_standard="c++20" if kind == "classic" and modern else "c++17",
        defines=_defines(kind, version, cuda=cuda),
        headers=headers,
        includes=includes,
        libraries=tuple(libraries),
        suffix=".so" if kind == "tvm-ffi" else ".abi3.so",
        sources=getattr(framework, "src", ()),
        flags=getattr(framework, "cxx_flags", ()),
        include=getattr(framework, "include", None) or (),
        more=_more(kind, variant, toolkit),
    )


def _more(kind: Kind, variant: Variant, toolkit: Sequence[Path]) -> tuple[HeaderSet, ...]:
    version = variant.backend.version
    if kind != "classic" or variant.backend.name != "cuda" or version is None:
        return ()
    try:
        return cuda_library_headers(version.major)
    except ToolchainError:  # no network; a toolkit that was installed whole has them
        if not any((folder / "cublas_v2.h").is_file() for folder in toolkit):
            raise
        return ()


def _headers(kind: Kind, version: Release) -> HeaderSet:
    if kind == "tvm-ffi":
        return tvm_ffi_headers()
    return torch_headers(max(version, _STABLE_HEADERS) if kind == "stable" else version)


def _defines(kind: Kind, version: Release, *, cuda: bool) -> tuple[str, ...]:
    made = ["-DCUDA_KERNEL", "-DUSE_CUDA=1"] if cuda else ["-DCPU_KERNEL"]
    if kind == "stable":
        made.append(f"-DTORCH_TARGET_VERSION=0x{version.major << 56 | version.minor << 48:016x}")
    if kind != "tvm-ffi":
        made.append("-DPy_LIMITED_API=0x03090000")
        if cuda:
            made.append("-DENABLE_FP8")
    return tuple(made)


def python_root(manifest: Manifest) -> str:
    """Return the directory, relative to the project, whose Python files go into a variant."""
    folder = "tvm-ffi-ext" if isinstance(manifest.framework, TvmFfi) else "torch-ext"
    return f"{folder}/{manifest.general.python_name}"


# ----------------------------------------------------------------------------- _ops.py

_TORCH_OPS: Final = '''\
"""The operators of this build, in a namespace of their own."""

import torch

from . import {id}

ops = torch.ops.{id}


def add_op_namespace_prefix(op_name: str) -> str:
    """Return the operator's name with the namespace of this build."""
    return f"{id}::{{op_name}}"
'''
_NOARCH_OPS: Final = '''\
"""The operators that this kernel registers, in a namespace of their own."""

import torch

ops = torch.ops.{id}


def add_op_namespace_prefix(op_name: str) -> str:
    """Return the operator's name with the namespace of this build."""
    return f"{id}::{{op_name}}"
'''
_TVM_FFI_OPS: Final = '''\
"""The functions of this build, and how JAX and torch name them."""

from importlib.util import find_spec
from pathlib import Path

import tvm_ffi

has_jax = bool(find_spec("jax") and find_spec("jax_tvm_ffi"))
has_torch = bool(find_spec("torch"))

ops = tvm_ffi.load_module(str(Path(__file__).parent / "{id}.so"))


def jax_add_ffi_target_name_prefix(name: str) -> str:
    """Return JAX's name of a function, with the namespace of this build."""
    return f"{id}.{{name}}"


def torch_add_op_namespace_prefix(op_name: str) -> str:
    """Return torch's name of an operator, with the namespace of this build."""
    return f"{id}::{{op_name}}"


def jax_register_ffi_target(name: str, *args, **kwargs):
    """Register a function with JAX; does nothing where JAX is not installed."""
    if not has_jax:
        return None
    from jax_tvm_ffi import register_ffi_target

    return register_ffi_target(jax_add_ffi_target_name_prefix(name), *args, **kwargs)


def jax_ffi_call(name: str, *args, **kwargs):
    """Call a registered function from JAX."""
    if not has_jax:
        raise RuntimeError("jax is not available, cannot call jax_ffi_call")
    from jax.ffi import ffi_call

    return ffi_call(jax_add_ffi_target_name_prefix(name), *args, **kwargs)
'''
_OPS: Final[dict[Kind, str]] = {
    "stable": _TORCH_OPS,
    "classic": _TORCH_OPS,
    "tvm-ffi": _TVM_FFI_OPS,
    "noarch": _NOARCH_OPS,
}


def ops_text(kind: Kind, identifier: str) -> str:
    """Return the text of `_ops.py`."""
    return _OPS[kind].format(id=identifier)
