"""The decorator `kernel`: an object that is launched like `kernel.launch(n, x, y)`.

What a call passes is described in `arguments.py`; how it is compiled is `variants.py`.
"""

from __future__ import annotations

import builtins
import dataclasses
import inspect
import threading
import types
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, overload

import numpy as np

from kernelmill.compiler.kernel_functions import static
from kernelmill.compiler.narrow import NARROW_LIMIT
from kernelmill.errors import ArgumentError, DeviceError
from kernelmill.kernels.arguments import Given, given_argument, overlapping, views_of
from kernelmill.kernels.coverage import covered_loops
from kernelmill.kernels.moves import Sent, bring, is_numpy, send
from kernelmill.kernels.quick import QuickCalls, look
from kernelmill.kernels.variants import KernelOptions, Shape, Variant, make_variant
from kernelmill.runtime.cuda.arrays import DeviceView
from kernelmill.runtime.cuda.launches import LaunchConfig, PreparedLaunch, launch, prepare
from kernelmill.runtime.devices import current_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from kernelmill.compiler.frontend import Baked
    from kernelmill.toolchain.nvrtc import CudaImage, Output

__all__ = ["ConfiguredKernel", "KernelFunction", "kernel"]

Extent: TypeAlias = int | tuple[int, ...]

# Threads of a block where the caller leaves the choice, by the number of dimensions.
_BLOCKS: Final[dict[int, tuple[int, int, int]]] = {1: (256, 1, 1), 2: (32, 8, 1), 3: (32, 4, 2)}
_MOST_BLOCKS: Final = (NARROW_LIMIT // 256, 65535, 65535)
_MOST_STATES: Final = 8
_MOST_THREADS: Final = 1024
_MOST_CONFIGS: Final = 256
_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


@overload
def kernel(
    function: Callable[..., None],
    /,
    *,
    debug: bool = ...,
    contract: bool = ...,
    max_registers: int | None = ...,
    fast_math: bool = ...,
) -> KernelFunction: ...
@overload
def kernel(
    *,
    debug: bool = ...,
    contract: bool = ...,
    max_registers: int | None = ...,
    fast_math: bool = ...,
) -> Callable[[Callable[..., None]], KernelFunction]: ...
def kernel(
    function: Callable[..., None] | None = None,
    /,
    *,
    debug: bool = False,
    contract: bool = True,
    max_registers: int | None = None,
    fast_math: bool = False,
) -> KernelFunction | Callable[[Callable[..., None]], KernelFunction]:
    """Make a SIMT kernel of a Python function; works as a decorator with and without arguments.

    The function is compiled for the types it is called with, when it is first launched; it is
    never executed by Python. What it may contain: `docs/reference/kernel-language.md`.

    Parameters
    ----------
    function
        A plain function without a result; it writes to elements of its arrays.
    debug
        Check each index: one that is out of range ends the kernel, and names array, index and line.
    contract
        Let `a * b + c` round once, and take CUDA's own mathematical functions. Without, results
        are equal to the bit on all devices.
    max_registers
        The most registers a thread may use.
    fast_math
        Take the chip's approximations of functions and divisions, and no subnormal numbers.

    Returns
    -------
    KernelFunction
        Launched by `f.launch(n, *args)` or `f[grid, block](*args)`.

    Raises
    ------
    ArgumentError
        It is no plain Python function.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> @km.kernel
    ... def saxpy(a, x, y):
    ...     for i in km.grid_range(len(x)):
    ...         y[i] += a * x[i]
    >>> x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    >>> with km.Device("emulator"):
    ...     saxpy.launch(len(x), 2.0, x, y)
    >>> y
    array([1., 3., 5., 7.], dtype=float32)
    """
    options = KernelOptions(
        debug=debug, contract=contract, max_registers=max_registers, fast_math=fast_math
    )
    if function is None:
        return lambda f: KernelFunction(f, options)
    return KernelFunction(function, options)


@dataclass(frozen=True, slots=True)
class ConfiguredKernel:
    """A kernel with the arrangement of its threads; calling it launches it."""

    kernel: KernelFunction
    config: LaunchConfig
    stream: object = None

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Launch; see `KernelFunction.launch` for what is raised."""
        self.kernel.launch_with(self.stream, self.config, args, kwargs)


class KernelFunction:
    """A kernel written in Python; made by `kernel`.

    Parameters
    ----------
    function
        The Python function.
    options
        How it is compiled.
    """

    # What the front end knows a kernel by.
    __kernelmill_kernel__ = True

    def __init__(self, function: Callable[..., None], options: KernelOptions) -> None:
        if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>":
            raise ArgumentError(
                f"km.kernel expects a function made by `def`, got {function!r}",
                hint="write @km.kernel above `def name(...):`",
            )
        self.function = function
        self.options = options
        self.signature = inspect.signature(function)
        self._check_signature()
        annotations = function.__annotations__
        self._fixed = frozenset(n for n, a in annotations.items() if _is_static(a))
        self._names = tuple(self.signature.parameters)
        self._variants: dict[Hashable, list[Variant]] = {}
        self._quick = QuickCalls()
        self._configs: dict[object, LaunchConfig] = {}
        self._lock = threading.Lock()
        update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<kernelmill kernel {self.function.__name__}{self.signature}>"

    def _check_signature(self) -> None:
        for parameter in self.signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise ArgumentError(
                    f"kernel {self.function.__name__!r} takes `{parameter}`: a kernel's arguments "
                    "are named one by one",
                    hint="list the arguments: `def f(x, y, n)`",
                )

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Refuse: a kernel runs on many threads, and says on how many."""
        del args, kwargs
        name = self.function.__name__
        raise ArgumentError(
            f"kernel {name!r} is called like a function; it is launched on many threads",
            hint=f"write {name}.launch(n, ...) for n elements, or {name}[grid, block](...)",
        )

    def __getitem__(self, config: object) -> ConfiguredKernel:
        """Return the kernel with its threads arranged: `kernel[grid, block, stream, shared]`.

        `grid` and `block` are whole numbers or tuples (x, y, z); `stream` and the bytes of dynamic
        shared memory may be left out. A `LaunchConfig` alone is taken too.
        """
        if isinstance(config, LaunchConfig):
            return ConfiguredKernel(self, config)
        given = config if isinstance(config, tuple) else (config,)
        if not 2 <= len(given) <= 4:  # noqa: PLR2004 - grid, block; stream, shared
            raise ArgumentError(
                f"kernel {self.function.__name__!r} is configured by {len(given)} values",
                hint="write kernel[grid, block], [grid, block, stream] or "
                "[grid, block, stream, shared_bytes]",
            )
        grid, block, *rest = given
        shared = int(rest[1]) if len(rest) > 1 else 0
        return ConfiguredKernel(
            self, LaunchConfig(grid, block, shmem_size=shared), rest[0] if rest else None
        )

    # ------------------------------------------------------------------ launching

    def launch(
        self,
        n: Extent,
        *args: object,
        stream: object = None,
        block: Extent | None = None,
        **kwargs: object,
    ) -> None:
        """Launch one thread for each of `n` elements, in blocks of a size that is chosen.

        Parameters
        ----------
        n
            How many, as the kernel's `grid_range` counts them: a number, or a tuple of 2 or 3
            whose last one is along x.
        *args, **kwargs
            The arguments of the kernel: arrays in the memory of one CUDA device, which then runs
            it, or of the host where the emulator is the current device; NumPy arrays where it is a
            CUDA device, which are copied there, and back where they are written; numbers, NumPy
            scalars, structs; dtypes and functions, which are baked.
        stream
            As `km.launch` takes it; by default the current one.
        block
            Threads of a block in x, y, z; by default 256, (32, 8) or (32, 4, 2).

        Raises
        ------
        OperatorError
            The language refuses the kernel; shows the line with a caret.
        ArgumentError, DTypeError
            An argument cannot be passed, or the launch exceeds a limit.
        DeviceError
            The arrays are elsewhere, or an earlier kernel failed.
        """
        asked: object = n
        known = isinstance(asked, (int, tuple))
        config = self._configs.get((n, block)) if known else None
        if config is None:
            config = self._config_for(n, block)
        if config is None:
            self._bind(args, kwargs)  # nothing to do, and yet no wrong call
            return
        self.launch_with(stream, config, args, kwargs)

    def _config_for(self, n: Extent, block: Extent | None) -> LaunchConfig | None:
        """Return how `n` elements are launched, None for none; checks `n`."""
        extents: tuple[Any, ...] = n if isinstance(n, tuple) else (n,)  # Any: what was given
        whole = all(isinstance(e, (int, np.integer)) and e >= 0 for e in extents)
        if not 1 <= len(extents) <= 3 or not whole:  # noqa: PLR2004 - x, y, z
            raise ArgumentError(
                f"kernel {self.function.__name__!r} is launched for n={n!r}; accepted: a whole "
                "number of elements, or a tuple of 2 or 3",
                hint="write kernel.launch(len(x), ...) or kernel.launch(x.shape, ...)",
            )
        if 0 in extents:
            return None
        sides = _triple(block) if block is not None else _BLOCKS[len(extents)]
        grid = tuple(
            min(-(-int(e) // s), limit)
            for e, s, limit in zip(reversed(extents), sides, _MOST_BLOCKS, strict=False)
        )
        if len(self._configs) >= _MOST_CONFIGS:
            self._configs.clear()
        return self._configs.setdefault((n, block), LaunchConfig(grid, sides))

    def launch_with(
        self,
        stream: object,
        config: LaunchConfig,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> None:
        """Launch with a configuration; `km.launch(stream, config, kernel, *args)` does this."""
        seen = None if kwargs or self._fixed else look(config, args)
        if seen is not None:
            call = self._quick.get(*seen)
            if call is not None:
                launch(stream, config, call.loaded, *call.passed(args))
                return
        given = self._bind(args, kwargs)
        number = self._device_for(given)
        sent: list[Sent] = []
        if number is not None and any(map(is_numpy, given)):
            given, sent = send(given, number, stream)
        variant = self._fitting(given, config)
        loaded = variant.on_emulator() if number is None else variant.on_cuda(number)
        launch(stream, config, loaded, *variant.passed(given))
        if sent:
            bring(sent, variant.written, stream)
        elif seen is not None:
            self._quick.keep(seen[0], given, variant, loaded)

    def prepare(self, config: LaunchConfig, args: tuple[object, ...]) -> PreparedLaunch:
        """Compile, check and pack once, to launch often; see `km.prepare`."""
        given = self._bind(args, {})
        number = self._device_for(given)
        variant = self._fitting(given, config)
        loaded = variant.on_emulator() if number is None else variant.on_cuda(number)
        return prepare(config, loaded, *variant.passed(given))

    def _device_for(self, given: list[Given]) -> int | None:
        """Return the number of the CUDA device that runs a call, None for the emulator."""
        name = self.function.__name__
        numbers = {v.device for v in views_of(given) if isinstance(v, DeviceView)}
        backend = current_backend()
        on_cuda = bool(numbers) or backend.name.startswith("cuda")
        host = next((g for g in given if _is_on_host(g) and not (on_cuda and is_numpy(g))), None)
        if on_cuda and host is not None:
            raise DeviceError(
                f"argument {host.name!r} of kernel {name!r} is in the memory of the host; this "
                "runs on a CUDA device",
                hint="copy it to the device: km.to_device(x), x.cuda(), cupy.asarray(x)",
            )
        if on_cuda:
            return min(numbers, default=int(backend.name.partition(":")[2] or 0))
        if backend.name == "emulator":
            return None
        what = "its arrays are in the memory of the host" if host else "it has no arrays"
        raise DeviceError(
            f"kernel {name!r} cannot run on {backend.name}: {what}, and kernels run on CUDA "
            "devices and on the emulator",
            hint='choose a device: with km.Device("cuda"), or with km.Device("emulator")',
        )

    # ------------------------------------------------------------------ variants

    def _bind(self, args: tuple[object, ...], kwargs: dict[str, object]) -> list[Given]:
        names = self._names
        if kwargs or len(args) != len(names):
            try:
                bound = self.signature.bind(*args, **kwargs)
            except TypeError as error:
                raise ArgumentError(
                    f"kernel {self.function.__name__!r}: {error}",
                    hint=f"its arguments are {self.signature}",
                ) from None
            bound.apply_defaults()
            args = tuple(bound.arguments[n] for n in names)
        fixed = self._fixed
        return [
            given_argument(name, value, fixed=name in fixed)
            for name, value in zip(names, args, strict=True)
        ]

    def _fitting(self, given: list[Given], config: LaunchConfig) -> Variant:
        """Return the kernel for a launch: the general one, or one whose grid covers its loops."""
        shape = _shape_of(config)
        general = self._variant(given, shape)
        assert isinstance(config.grid, tuple)
        gx, gy, gz = config.grid
        covered = covered_loops(general.kernel, given, (gx, gy, gz))
        if not any(covered):
            return general
        return self._variant(given, dataclasses.replace(shape, covered=covered))

    def _variant(self, given: list[Given], shape: Shape) -> Variant:
        disjoint = not overlapping(given)
        key = (shape, disjoint, *((g.key, g.wide) for g in given))
        for found in self._variants.get(key, ()):
            if found.is_current():
                return found
        made = make_variant(self.function, given, shape, self.options, disjoint=disjoint)
        with self._lock:
            states = self._variants.setdefault(key, [])
            states[:] = [made, *states[: _MOST_STATES - 1]]
        return made

    def specialize(self, *args: object, block: Extent = 256, grid: Extent = 1) -> Variant:
        """Return the kernel for arguments like these, translated; nothing is launched.

        An array may be spelled, "float32[:, :]".

        Examples
        --------
        >>> import kernelmill as km
        >>> @km.kernel
        ... def fill(x, value):
        ...     for i in km.grid_range(len(x)):
        ...         x[i] = value
        >>> fill.specialize("float32[:]", 1.5).entry
        'km_fill'
        """
        return self._variant(self._bind(args, {}), _shape_of(LaunchConfig(grid, block)))

    def source(self, *args: object, block: Extent = 256) -> str:
        """Return the CUDA C++ for arguments like these.

        Examples
        --------
        >>> import kernelmill as km
        >>> @km.kernel
        ... def fill(x, value):
        ...     for i in km.grid_range(len(x)):
        ...         x[i] = value
        >>> print(fill.source("float32[:]", 1.5).splitlines()[0])
        // fill(x: float32[:], value: float32), blocks of 256 x 1 x 1 threads
        """
        return self.specialize(*args, block=block).source

    def compile(
        self,
        *args: object,
        block: Extent = 256,
        arch: str = "sm_90",
        output: Output = "cubin",
    ) -> CudaImage:
        """Compile for arguments like these and a chip; needs neither a driver nor a GPU."""
        return self.specialize(*args, block=block).compile(output, arch=arch)

    def explain(self, *args: object, block: Extent = 256) -> str:
        """Describe the kernel for arguments like these: what is passed, memory, what is baked.

        Examples
        --------
        >>> import kernelmill as km
        >>> LIMIT = 3
        >>> @km.kernel
        ... def cut(x):
        ...     for i in km.grid_range(len(x)):
        ...         x[i] = min(x[i], LIMIT)
        >>> print(cut.explain("int32[:]"))
        cut, blocks of 256 x 1 x 1 threads
        passed: address of x, shape 0 of x
        memory of its own: nothing
        baked into the code: LIMIT
        """
        found = self.specialize(*args, block=block)
        own = [a for a in found.kernel.arrays if a.space != "global"]
        memory = ", ".join(f"{a.name}: {a.space} {a.dtype}{list(a.shape or ())}" for a in own)
        kinds = {"data": "address of {0}", "scalar": "{0}: {2}"}
        passed = [
            kinds.get(p.kind, "{1} {3} of {0}").format(p.name, p.kind, p.type, p.dim)
            for p in found.parameters
        ]
        baked = ", ".join(dict.fromkeys(b.name for b in found.translation.baked if _is_own(b)))
        x, y, z = found.kernel.block
        return (
            f"{found.name}, blocks of {x} x {y} x {z} threads\n"
            f"passed: {', '.join(passed) or 'nothing'}\n"
            f"memory of its own: {memory or 'nothing'}\n"
            f"baked into the code: {baked or 'nothing'}"
        )


def _is_own(baked: Baked) -> bool:
    """Whether a baked object is the user's: no module, no builtin."""
    plain = getattr(builtins, baked.name, None) is baked.value
    return not plain and not isinstance(baked.value, types.ModuleType)


def _is_on_host(given: Given) -> bool:
    return given.original is not None and getattr(given.value, "device", None) is None


def _is_static(annotation: object) -> bool:
    if isinstance(annotation, str):  # from __future__ import annotations
        return annotation.rpartition(".")[2] == "static"
    return annotation is static


def _triple(extent: Extent) -> tuple[int, int, int]:
    config = LaunchConfig(1, extent)
    assert isinstance(config.block, tuple)
    x, y, z = config.block
    return x, y, z


def _shape_of(config: LaunchConfig) -> Shape:
    assert isinstance(config.grid, tuple)
    assert isinstance(config.block, tuple)
    (gx, gy, gz), (bx, by, bz) = config.grid, config.block
    if bx * by * bz > _MOST_THREADS:
        raise ArgumentError(
            f"block={config.block}: {bx * by * bz} threads a block, the limit is {_MOST_THREADS}",
            hint="launch smaller blocks, and more of them",
        )
    threads = gx * gy * gz * bx * by * bz
    return Shape((bx, by, bz), gy == gz == 1, threads <= NARROW_LIMIT)
