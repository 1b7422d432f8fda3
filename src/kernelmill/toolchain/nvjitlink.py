"""Images to one cubin by nvJitLink, with no driver and no GPU; results are cached.

LTO-IR is optimised across images, so that a function of one is inlined into a kernel of another.
"""

from __future__ import annotations

import time
from functools import cache as once
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from kernelmill.cache import Bundle, Image, default_cache, digest
from kernelmill.errors import ArgumentError, CompileError
from kernelmill.toolchain.diagnostics import bound_log
from kernelmill.toolchain.nvidia import bindings, load_library
from kernelmill.toolchain.nvrtc import CudaImage, CudaOptions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Linked", "link_cuda", "nvjitlink_identity", "nvjitlink_version"]

Linked: TypeAlias = Literal["cubin", "ptx"]
LINKED: Final[tuple[Linked, ...]] = get_args(Linked)


@once
def nvjitlink_version() -> tuple[int, int]:
    """Return the version of nvJitLink, such as (13, 0).

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    load_library("nvJitLink")
    major, minor = bindings("nvjitlink").version()
    return int(major), int(minor)


def nvjitlink_identity() -> tuple[object, ...]:
    """Return what a cache key must hold of the linker: version and state of its file."""
    return ("nvjitlink", *nvjitlink_version(), load_library("nvJitLink").stamps)


def link_cuda(
    images: Sequence[CudaImage],
    *,
    arch: str = "sm_90",
    output: Linked = "cubin",
    options: CudaOptions | None = None,
    name: str = "linked",
    cache: bool = True,
) -> CudaImage:
    """Link images into one; no driver and no GPU are needed.

    Parameters
    ----------
    images
        At least one; LTO-IR, PTX and cubins may be mixed. A cubin must be for `arch`.
    arch
        The chip: "sm_90".
    output
        "cubin"; or "ptx", where all images are LTO-IR.
    options
        `contract`, `lineinfo`, `debug`, `maxregcount` and `extra` count.
    name
        What the result is called in messages.
    cache
        Whether to look in the cache of compiled kernels and to keep the result there.

    Raises
    ------
    CompileError
        nvJitLink refuses: undefined or doubled symbols, images of another chip, images made by a
        newer compiler than it knows; its log is part of the error.
    MissingExtraError
        nvJitLink is not installed; the hint is the `pip install` line.
    ArgumentError
        There is nothing to link, or the kind of output does not exist.

    Examples
    --------
    >>> from kernelmill.toolchain.nvjitlink import link_cuda
    >>> from kernelmill.toolchain.nvrtc import compile_cuda
    >>> op = compile_cuda("__device__ float op(float x) { return 2 * x; }", output="ltoir")
    >>> kernel = compile_cuda(
    ...     "extern __device__ float op(float);"
    ...     'extern "C" __global__ void k(float* x) { x[0] = op(x[0]); }', output="ltoir")
    >>> link_cuda([op, kernel], arch="sm_90").output
    'cubin'
    """
    if output not in LINKED:
        raise ArgumentError(f"output {output!r} does not exist; outputs: {', '.join(LINKED)}")
    if not images:
        raise ArgumentError("there is nothing to link: 0 images were given; needed is one or more")
    _check_producers(images)
    flags = _flags(images, arch, output, options or CudaOptions())
    if not cache:
        return _link(images, arch, output, flags, name)
    key = digest(
        kind="cuda link",
        images=tuple((image.output, image.data) for image in images),
        flags=flags,
        name=name,
        linker=nvjitlink_identity(),
    )
    made: list[CudaImage] = []

    def build(_: Path) -> Bundle:
        made.append(_link(images, arch, output, flags, name))
        return Bundle((Image(arch, output, made[0].data),), signature=name)

    bundle = default_cache().get_or_build(key, build)
    if made:
        return made[0]
    data, producer = bundle.image(arch).data, nvjitlink_version()
    return CudaImage(data, arch, output, name=name, producer=producer, cached=True)


def _check_producers(images: Sequence[CudaImage]) -> None:
    version = nvjitlink_version()
    for image in images:
        if image.output == "ltoir" and image.producer > version:
            made = ".".join(map(str, image.producer))
            raise CompileError(
                f"{image.name} is LTO-IR made by version {made}; nvJitLink here is "
                f"{version[0]}.{version[1]} and reads what is not newer than itself",
                hint=f"pip install --upgrade 'nvidia-nvjitlink>={made}'",
            )


def _flags(
    images: Sequence[CudaImage], arch: str, output: Linked, options: CudaOptions
) -> tuple[str, ...]:
    found = [f"-arch={arch}"]
    if any(image.output == "ltoir" for image in images):
        found += ["-lto", f"-fma={int(options.contract)}"]
    found += ["-ptx"] if output == "ptx" else []
    found += ["-lineinfo"] if options.lineinfo else []
    found += ["-g"] if options.debug else []
    found += [] if options.maxregcount is None else [f"-maxrregcount={options.maxregcount}"]
    return (*found, *options.extra)


def _link(
    images: Sequence[CudaImage], arch: str, output: Linked, flags: tuple[str, ...], name: str
) -> CudaImage:
    linker = bindings("nvjitlink")
    version = nvjitlink_version()
    start = time.perf_counter()
    try:
        handle = linker.create(len(flags), list(flags))
    except linker.nvJitLinkError as error:
        raise CompileError(
            f"nvJitLink {version[0]}.{version[1]} does not take {' '.join(flags)}: {error}"
        ) from error
    try:
        for image in images:
            kind = getattr(linker.InputType, image.output.upper())
            # PTX is read as a C string.
            data = image.data + b"\0" if image.output == "ptx" else image.data
            linker.add_data(handle, kind, data, len(data), image.name or "image")
        linker.complete(handle)
        get = getattr(linker, f"get_linked_{output}")
        made = bytearray(getattr(linker, f"get_linked_{output}_size")(handle))
        get(handle, made)
        log = _log(linker, handle, "info")
    except linker.nvJitLinkError as error:
        log = _log(linker, handle, "error")
        first = log.strip().partition("\n")[0] or str(error)
        raise CompileError(
            f"nvJitLink {version[0]}.{version[1]} cannot link {name} for {arch}: {first}",
            log=bound_log(log.strip()),
        ) from error
    finally:
        linker.destroy(handle)
    seconds = time.perf_counter() - start
    data = bytes(made).rstrip(b"\0") if output == "ptx" else bytes(made)
    return CudaImage(data, arch, output, bound_log(log.strip()), seconds, name, version)


def _log(linker: Any, handle: int, kind: str) -> str:  # Any: a module of the bindings
    size = getattr(linker, f"get_{kind}_log_size")(handle)
    if not size:
        return ""
    found = bytearray(size)
    getattr(linker, f"get_{kind}_log")(handle, found)
    return found.rstrip(b"\0").decode("utf-8", "replace")
