"""Programs, object code, linking and kernels: cuda.core's nouns, compiled without a driver.

`Program` and `Linker` compile through `toolchain`, with the cache, on any machine; a driver is
needed from `ObjectCode.get_kernel` on. Objects that cuda.core made are taken wherever ours are.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from kernelmill.config import get_config
from kernelmill.errors import ArgumentError, DeviceError
from kernelmill.runtime.cuda.device import cuda_device
from kernelmill.runtime.cuda.driver import api, check, core, translated
from kernelmill.runtime.devices import chosen_device
from kernelmill.toolchain.nvjitlink import Linked, link_cuda
from kernelmill.toolchain.nvrtc import CudaImage, CudaOptions, Output, compile_cuda

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelmill.runtime.cuda.arguments import Type
    from kernelmill.runtime.cuda.device import CudaDevice

__all__ = [
    "Attributes",
    "CodeType",
    "Kernel",
    "Linker",
    "ObjectCode",
    "Program",
    "ProgramOptions",
]

# The name that cuda.core has for it.
ProgramOptions = CudaOptions

CodeType: TypeAlias = Literal["c++", "ptx", "ltoir"]
_CODE_TYPES: Final = ("c++", "ptx", "ltoir")
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
# CUDA C++ that a user wrote is contracted, as by nvcc.
_USERS: Final = CudaOptions(contract=True)
# The ELF header: magic and class, machine, tables of segments and of sections, their entries.
_ELF: Final = struct.Struct("<5s13xH12xQQ6xHHHH2x")
_SECTION: Final = struct.Struct("<4xI16xQQ24x")
_EM_CUDA: Final = 190
_NOBITS: Final = 8
# CUDA guarantees this much shared memory; more is asked for, kernel by kernel.
_PLAIN_SHARED: Final = 48 << 10
# LTO-IR from a file does not say what made it.
_UNKNOWN: Final = (0, 0)


def _default_arch(arch: str | None) -> str:
    if arch is not None:
        return arch
    try:
        return cuda_device().arch
    except DeviceError as error:
        raise DeviceError(
            f"no architecture was given, and there is no device to ask: {error.message}",
            hint="pass arch='sm_90', or another one; compiling needs no GPU",
        ) from error


class Program:
    """Source code that can be compiled: CUDA C++, PTX or LTO-IR.

    Parameters
    ----------
    code
        Text, or for LTO-IR bytes.
    code_type
        "c++", "ptx" or "ltoir".
    options
        By default `CudaOptions(contract=True)`, as nvcc does it.
    headers
        Texts that `#include "name"` finds before any file.
    name
        What the source is called in messages.

    Examples
    --------
    >>> from kernelmill.runtime.cuda.program import Program
    >>> text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    >>> Program(text, "c++").compile("cubin", arch="sm_90")
    ObjectCode('program.cu', cubin for sm_90, ... bytes)
    """

    __slots__ = ("code", "code_type", "headers", "name", "options")

    def __init__(
        self,
        code: str | bytes,
        code_type: CodeType = "c++",
        *,
        options: CudaOptions | None = None,
        headers: Mapping[str, str] = _NONE,
        name: str = "program.cu",
    ) -> None:
        if code_type not in _CODE_TYPES:
            raise ArgumentError(
                f"code_type {code_type!r} does not exist; code types: {', '.join(_CODE_TYPES)}"
            )
        self.code, self.code_type = code, code_type
        self.options, self.headers, self.name = options or _USERS, headers, name

    def __repr__(self) -> str:
        return f"Program({self.name!r}, {self.code_type})"

    def compile(
        self,
        target_type: Output | Literal["emulator"] = "cubin",
        *,
        arch: str | None = None,
        name_expressions: Sequence[str] = (),
    ) -> ObjectCode:
        """Compile; neither a driver nor a GPU is needed where `arch` is given.

        Parameters
        ----------
        target_type
            "cubin", "ptx" or "ltoir"; PTX and LTO-IR compile to a cubin only. "emulator" makes
            code for the emulator, as "cubin" does where that is the current device.
        arch
            "sm_90"; by default that of cuda:0.
        name_expressions
            Template instances such as "scale<float>" that `get_kernel` is to know.

        Raises
        ------
        CompileError
            The compiler refuses; its log is part of the error.
        ArgumentError
            There is no such architecture, or no such way from `code_type` to `target_type`.
        """
        current = chosen_device() or get_config().device
        emulated = arch is None and target_type == "cubin" and current == "emulator"
        if emulated or target_type == "emulator":
            return self._emulated(name_expressions)
        chosen = _default_arch(arch)
        if self.code_type == "c++":
            text = self.code if isinstance(self.code, str) else self.code.decode()
            made = compile_cuda(
                text,
                arch=chosen,
                output=target_type,
                options=self.options,
                headers=self.headers,
                name=self.name,
                expressions=name_expressions,
            )
            return ObjectCode(made)
        if target_type != "cubin":
            raise ArgumentError(f"{self.code_type} compiles to a cubin, not to {target_type}")
        data = self.code.encode() if isinstance(self.code, str) else self.code
        image = CudaImage(data, chosen, self.code_type, name=self.name, producer=_UNKNOWN)
        return ObjectCode(link_cuda([image], arch=chosen, options=self.options, name=self.name))

    def _emulated(self, name_expressions: Sequence[str]) -> ObjectCode:
        from kernelmill.runtime.emulator import compile_emulated  # noqa: PLC0415 - only where asked for

        if self.code_type != "c++":
            raise ArgumentError(
                f"{self.code_type} cannot be compiled for the emulator; accepted: c++"
            )
        made: Any = compile_emulated(  # Any: it has the methods of ObjectCode
            self.code if isinstance(self.code, str) else self.code.decode(),
            name=self.name,
            options=self.options,
            headers=self.headers,
            expressions=name_expressions,
        )
        return cast("ObjectCode", made)


@dataclass(frozen=True, slots=True, repr=False)
class ObjectCode:
    r"""A compiled image; loaded into the driver when a kernel is first taken from it.

    Examples
    --------
    >>> import kernelmill as km
    >>> text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    >>> code = km.Program(text).compile("cubin", arch="sm_90")
    >>> code.code_type, code.code[:4]
    ('cubin', b'\x7fELF')
    >>> km.ObjectCode.from_cubin(code.code, name="again").code == code.code
    True
    """

    image: CudaImage
    _loaded: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # Any: core's

    def __repr__(self) -> str:
        made = self.image
        return f"ObjectCode({made.name!r}, {made.output} for {made.arch}, {len(made.data)} bytes)"

    @property
    def code(self) -> bytes:
        """The image."""
        return self.image.data

    @property
    def code_type(self) -> str:
        """What it is: "cubin", "ptx" or "ltoir"."""
        return self.image.output

    @property
    def symbol_mapping(self) -> Mapping[str, str]:
        """The mangled name of each template instance that was asked for."""
        return self.image.symbols

    @classmethod
    def from_cubin(cls, module: bytes | str | Path, *, name: str = "cubin") -> ObjectCode:
        """Return the object code of a cubin, or of a file that holds one.

        Raises
        ------
        ArgumentError
            It is no whole cubin; the driver is not asked, since damaged ones can end the process.
        """
        made = _image_of(module, "cubin", name)
        _check_cubin(made.data, name)
        return cls(made)

    @classmethod
    def from_ptx(cls, module: bytes | str | Path, *, name: str = "ptx") -> ObjectCode:
        """Return the object code of PTX, which the driver compiles when it is loaded."""
        return cls(_image_of(module, "ptx", name))

    @classmethod
    def from_ltoir(cls, module: bytes | str | Path, *, name: str = "ltoir") -> ObjectCode:
        """Return the object code of LTO-IR, for a `Linker`."""
        return cls(_image_of(module, "ltoir", name))

    def get_kernel(self, name: str, *, signature: Sequence[Type] | None = None) -> Kernel:
        """Load the image and return a kernel of it.

        Parameters
        ----------
        name
            Of an `extern "C"` kernel, or a template instance that was named when compiling.
        signature
            Types of its arguments, where they are known: dtypes for scalars and structs,
            `Pointer(dtype)` for arrays. Without, the sizes are checked that the driver knows.

        Raises
        ------
        DeviceError
            There is no driver or device, the image is for another chip, or there is no such
            kernel in it.
        ArgumentError
            The image is LTO-IR, which cannot be loaded.
        """
        symbol = self.image.symbols.get(name, name)
        with translated(f"load kernel {name!r} from {self!r}"):
            made = Kernel(self.load().get_kernel(symbol), name, signature, self)
        made.symbol = symbol
        return made

    def load(self) -> Any:  # Any: cuda.core.ObjectCode
        """Return cuda.core's object code; never print it."""
        found = self._loaded.get("core")
        if found is None:
            if self.image.output == "ltoir":
                raise ArgumentError(
                    f"{self!r} is LTO-IR, which cannot be loaded",
                    hint="link it: Linker(object_code).link('cubin')",
                )
            cuda_device().set_current()
            make = getattr(core().ObjectCode, f"from_{self.image.output}")
            with translated(f"load {self!r}"):
                found = self._loaded.setdefault("core", make(self.image.data, name=self.image.name))
        return found


def _image_of(module: bytes | str | Path, kind: Output, name: str) -> CudaImage:
    data = module if isinstance(module, bytes) else Path(module).read_bytes()
    return CudaImage(data, "", kind, name=name)


def _check_cubin(data: bytes, name: str) -> None:
    """Refuse what is no ELF file for CUDA, or ends before its tables or sections do."""
    found = "it does not begin as an ELF file for CUDA"
    if len(data) >= _ELF.size:
        magic, machine, segments, sections, width, segment_count, entry, count = _ELF.unpack_from(
            data
        )
        if magic == b"\x7fELF\x02" and machine == _EM_CUDA and entry == _SECTION.size:
            ends = [segments + width * segment_count, sections + entry * count]
            if ends[1] <= len(data):
                rows = range(sections, ends[1], entry)
                parts = [_SECTION.unpack_from(data, row) for row in rows]
                ends += [start + size for kind, start, size in parts if kind != _NOBITS]
            if max(ends) <= len(data):
                return
            found = f"it ends at byte {len(data)}, its parts at {max(ends)}"
    raise ArgumentError(
        f"{name!r} is no whole cubin: {found}", hint="compile it again; the file may be cut short"
    )


class Linker:
    """Several images that become one.

    Parameters
    ----------
    *object_codes
        Ours or cuda.core's: LTO-IR, PTX, cubins.
    arch
        "sm_90"; by default that of cuda:0.
    options
        As for `Program`.

    Examples
    --------
    >>> import kernelmill as km
    >>> operator = "__device__ float op(float x) { return -x; }"
    >>> kernel = '''extern __device__ float op(float);
    ... extern "C" __global__ void apply(float* x) { x[threadIdx.x] = op(x[threadIdx.x]); }'''
    >>> parts = [km.Program(t).compile("ltoir", arch="sm_90") for t in (kernel, operator)]
    >>> km.Linker(*parts, arch="sm_90").link("cubin").code_type
    'cubin'
    """

    __slots__ = ("_arch", "_images", "_options")

    def __init__(
        self, *object_codes: Any, arch: str | None = None, options: CudaOptions | None = None
    ) -> None:  # Any: object code of ours or of cuda.core
        self._images = [_as_image(code) for code in object_codes]
        self._arch, self._options = arch, options or _USERS

    def link(self, target_type: Linked = "cubin", *, name: str = "linked") -> ObjectCode:
        """Link; neither a driver nor a GPU is needed where `arch` was given.

        Raises
        ------
        CompileError
            nvJitLink refuses; its log is part of the error.
        """
        arch = _default_arch(self._arch)
        made = link_cuda(
            self._images, arch=arch, output=target_type, options=self._options, name=name
        )
        return ObjectCode(made)


def _as_image(code: Any) -> CudaImage:
    if isinstance(code, ObjectCode):
        return code.image
    kind = getattr(code, "code_type", None)
    if kind not in ("cubin", "ptx", "ltoir"):
        raise ArgumentError(f"a {type(code).__qualname__} is no object code that can be linked")
    return CudaImage(bytes(code.code), "", kind, name=str(code.name or kind))


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a kernel needs on a device; sizes in bytes, `local_bytes` a thread (spills, arrays)."""

    registers: int
    shared_bytes: int
    local_bytes: int
    constant_bytes: int
    max_threads_per_block: int
    max_dynamic_shared_bytes: int


class Kernel:
    """A loaded kernel; `core` is cuda.core's. Made by `ObjectCode.get_kernel`.

    Parameters
    ----------
    core
        A kernel of cuda.core, which is kept as it is.
    name
        What it is called in messages.
    signature
        Types of its arguments, or None.
    code
        The object code that it is from, where that is known.

    Examples
    --------
    >>> import kernelmill as km
    >>> def needs_of(code, name):  # object code, for the GPU that is there
    ...     kernel = code.get_kernel(name)
    ...     return kernel.attributes().registers, kernel.occupancy(256)
    """

    __slots__ = (
        "_parameters",
        "code",
        "core",
        "handle",
        "name",
        "prepared",
        "signature",
        "spare",
        "symbol",
    )

    def __init__(
        self,
        core: Any,  # Any: cuda.core.Kernel
        name: str,
        signature: Sequence[Type] | None = None,
        code: ObjectCode | None = None,
    ) -> None:
        self.core, self.name, self.code = core, name, code
        self.symbol = name  # in the image
        self.handle = int(core.handle)
        self.signature = None if signature is None else tuple(signature)
        self._parameters: tuple[tuple[int, int], ...] | None = None
        # What launches of this kernel leave for the next one; Any: classes of `launches.py`.
        self.prepared: dict[Any, Any] = {}
        self.spare: list[Any] = []

    def __repr__(self) -> str:
        return f"Kernel({self.name!r})"

    @property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        """Offset and size of each argument in bytes, as compiled."""
        if self._parameters is None:
            with translated(f"ask for the arguments of kernel {self.name!r}"):
                info = self.core.arguments_info
            self._parameters = tuple((int(p.offset), int(p.size)) for p in info)
        return self._parameters

    def attributes(self, device: CudaDevice | None = None) -> Attributes:
        """Return what the kernel needs on a device; by default cuda:0."""
        on = device or cuda_device()
        with translated(f"ask for the attributes of kernel {self.name!r}"):
            found = self.core.attributes[on.core]
            return Attributes(
                registers=int(found.num_regs),
                shared_bytes=int(found.shared_size_bytes),
                local_bytes=int(found.local_size_bytes),
                constant_bytes=int(found.const_size_bytes),
                max_threads_per_block=int(found.max_threads_per_block),
                max_dynamic_shared_bytes=int(found.max_dynamic_shared_size_bytes),
            )

    def allow_shared(self, shmem_size: int, device: CudaDevice) -> None:
        """Ask the driver for more dynamic shared memory than each kernel may use.

        What was allowed before stays: launches that were prepared with more go on.
        """
        device.set_current()
        if self.attributes(device).shared_bytes + shmem_size <= _PLAIN_SHARED:
            return
        cuda = api()
        name = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        handle = cuda.CUkernel(self.handle)
        action = f"give kernel {self.name!r} {shmem_size} bytes of shared memory"
        # Asked of the driver itself: cuda.core remembers what it answered first.
        if check(cuda.cuKernelGetAttribute(name, handle, device.number), action) < shmem_size:
            check(cuda.cuKernelSetAttribute(name, shmem_size, handle, device.number), action)

    def occupancy(self, block: int, *, shmem_size: int = 0) -> int:
        """Return how many blocks of `block` threads a multiprocessor runs at once."""
        self.allow_shared(shmem_size, cuda_device())
        with translated(f"ask for the occupancy of kernel {self.name!r}"):
            return int(self.core.occupancy.max_active_blocks_per_multiprocessor(block, shmem_size))
