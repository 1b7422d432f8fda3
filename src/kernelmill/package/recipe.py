"""How one variant is compiled: its units with all flags, and how they are linked. Runs nothing.

Paths in commands are relative to the project; every absolute one has a name of its own that stands
in the binary and in cache keys in its place.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from kernelmill.cache.key import digest
from kernelmill.errors import ManifestError, NotImplementedHere, ToolchainError
from kernelmill.package.archs import Arch, gencode, loose_intersection, sorted_archs
from kernelmill.package.cutlass import cutlass_includes
from kernelmill.package.frameworks import binding_of, kind_of
from kernelmill.package.nvcc import default_archs, find_cuda
from kernelmill.package.objects import Unit
from kernelmill.package.wheels import build_cache
from kernelmill.toolchain.host import find_host_compiler

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelmill.package.frameworks import Binding
    from kernelmill.package.manifest import Kernel
    from kernelmill.package.matrix import Entry, Project
    from kernelmill.package.nvcc import Cuda
    from kernelmill.toolchain.host import HostCompiler

__all__ = ["DATA", "Recipe", "recipe_of"]

DATA: Final = Path(__file__).parent
_HOST_SUFFIXES: Final = frozenset({".cpp", ".cc", ".cxx", ".c"})
_DEVICE_SUFFIX: Final = ".cu"
_HEADERS: Final = frozenset({".h", ".hpp", ".hh", ".hxx", ".cuh", ".inl", ".inc", ".ipp"})
_NAME: Final = "TORCH_EXTENSION_NAME"
_OPTIMISED: Final = ("-O3", "-DNDEBUG")
_HIDDEN: Final = ("-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a variant with machine code is made from.

    `names` says what absolute directories are called; `archs` is all that device code is made for;
    `identity` tells compilers and their data apart.
    """

    entry: Entry
    identifier: str
    binding: Binding
    host: HostCompiler
    cuda: Cuda | None
    units: tuple[Unit, ...]
    archs: tuple[Arch, ...]
    names: dict[str, str]
    identity: str

    @property
    def library(self) -> str:
        """The file name of the shared library."""
        return f"{self.identifier}{self.binding.suffix}"

    def link_command(self, objects: Sequence[str], stubs: Sequence[str], out: Path) -> list[str]:
        """Return the command that links objects, in their order."""
        script = f"-Wl,--version-script={DATA / 'pins' / 'exports.map'}"
        # -s: the table of symbols holds names of nvcc's temporary files, with a process number.
        fixed = ["-Wl,--build-id=sha1", "-Wl,-z,noexecstack", "-Wl,-s", script]
        libraries = ["-Wl,--no-as-needed", *stubs]
        return [*self.host.command, "-shared", "-o", str(out), *objects, *libraries, *fixed]

    def pins(self) -> tuple[Unit, ...]:
        """Return the unit with members of libstdc++ that others must not import from it, if any."""
        if self.host.kind == "zig":
            return ()
        flags = (f"-std={self.binding.standard}", *_OPTIMISED, *_HIDDEN)
        maps = (f"-ffile-prefix-map={DATA}=/kernelmill",)
        return (Unit(str(DATA / "pins" / "libstdcxx.cpp"), (*self.host.command, *flags, *maps)),)


def recipe_of(
    project: Project, entry: Entry, identifier: str, *, archs: Sequence[str] | None = None
) -> Recipe:
    """Return how a variant is compiled on this machine.

    Parameters
    ----------
    project, entry
        The project, and one of its variants.
    identifier
        The name of module, library and namespace.
    archs
        Capabilities that stand for those the toolkit serves.

    Raises
    ------
    ManifestError
        A source is absent, lies outside the project or is of no known kind.
    ToolchainError
        A compiler or headers are missing, or this compiler cannot make such a binding.
    NotImplementedHere
        The variant's backend is not built.
    """
    variant = entry.variant
    if entry.refusal is not None:
        raise NotImplementedHere(f"{variant} cannot be built: {entry.refusal}")
    kernels = entry.manifest.kernels_of(variant.backend.name)
    version = variant.backend.version
    cuda = find_cuda(version) if version else None
    host = _host(kind_of(variant) != "tvm-ffi", cuda)
    binding = binding_of(variant, entry.manifest)
    served = tuple(archs or (default_archs(version) if version else ()))
    maker = _Maker(project.root, identifier, binding, host, cuda, served)
    units = [*maker.units_of_binding(), *(u for k in kernels for u in maker.units_of(k))]
    if not units:
        raise ManifestError(f"{entry.file} names no source for {variant.backend.name}")
    return Recipe(
        entry=entry,
        identifier=identifier,
        binding=binding,
        host=host,
        cuda=cuda,
        units=tuple(units),
        archs=tuple(sorted({arch for unit in units for arch in unit.archs})),
        names=maker.names(),
        identity=_identity(host, cuda),
    )


def _host(torch: bool, cuda: Cuda | None) -> HostCompiler:  # noqa: FBT001
    host = find_host_compiler()
    if host.kind == "zig" and (torch or cuda):
        reason = (
            "a torch binding: it links libc++, so that the first error ends the process"
            if torch
            else "CUDA code: nvcc does not take it as its host compiler"
        )
        raise ToolchainError(
            f"{host.label} cannot make {reason}",
            hint="install g++ (`apt install g++`), or build the tvm-ffi variant for the CPU",
        )
    return host


def _identity(host: HostCompiler, cuda: Cuda | None) -> str:
    data = [
        (path.name, path.read_bytes())
        for folder in ("pins", "pins/sys", "include", "nvrtc")
        for path in sorted((DATA / folder).iterdir())
        if path.is_file()
    ]
    return digest(host=host.identity, cuda=cuda.identity if cuda else None, data=data)


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes units: what all sources of one variant share."""

    root: Path
    identifier: str
    binding: Binding
    host: HostCompiler
    cuda: Cuda | None
    served: tuple[str, ...]

    def names(self) -> dict[str, str]:
        """Return what absolute directories are called, inner ones before outer ones.

        The order does not depend on paths, since it is that of flags, and flags are part of keys.
        """
        headers = self.binding.headers
        found = {str(headers.path): f"/{headers.project}-{headers.version}-{headers.tree[:12]}"}
        for toolkit in (self.cuda, self.cuda.host_tools if self.cuda else None):
            if toolkit is None:
                continue
            base = toolkit.root.parent if toolkit.route == "nvrtc" else toolkit.root
            found[str(base)] = f"/cuda-{toolkit.release}"
        found[str(build_cache() / "headers")] = "/headers"
        found[str(DATA)] = "/kernelmill"
        found[str(self.root)] = "."
        return found

    def units_of_binding(self) -> Iterable[Unit]:
        binding = self.binding
        for source in self._sources(binding.sources, "torch-ext"):
            if PurePosixPath(source).suffix == _DEVICE_SUFFIX:
                yield self._device(source, binding.include, (), binding.flags, None, named=True)
            else:
                yield self._host(source, binding.include, binding.flags, named=True)

    def units_of(self, kernel: Kernel) -> Iterable[Unit]:
        if not self._wanted(kernel):
            return
        named = self._mentions_name(kernel.src)
        include = (*(kernel.include or ()), *cutlass_includes(kernel.depends))
        for source in self._sources(kernel.src, f"kernel.{kernel.name}"):
            if PurePosixPath(source).suffix == _DEVICE_SUFFIX:
                yield self._device(
                    source, include, kernel.cuda_flags, (), kernel.cuda_capabilities, named=named
                )
            else:
                yield self._host(source, include, kernel.cxx_flags, named=named)

    def _wanted(self, kernel: Kernel) -> bool:
        if kernel.cuda_minver is None or self.cuda is None:
            return True
        own = tuple(map(int, self.cuda.release.split(".")))
        return own >= kernel.cuda_minver.parts

    def _sources(self, names: Iterable[str], place: str) -> Iterable[str]:
        """Yield the sources to compile, sorted; headers are only looked at."""
        for name in sorted(set(names)):
            suffix = PurePosixPath(name).suffix
            if suffix in _HOST_SUFFIXES or (suffix == _DEVICE_SUFFIX and self.cuda is not None):
                yield name
            elif suffix not in _HEADERS:
                known = " ".join(sorted(_HOST_SUFFIXES | _HEADERS | {_DEVICE_SUFFIX}))
                raise ManifestError(
                    f"`{place}.src` names {name}; sources of this backend end in: {known}"
                )

    def _mentions_name(self, names: Iterable[str]) -> bool:
        """Say whether a source uses the module's name; only then is it compiled anew with it."""
        paths = (self.root / name for name in names)
        return any(_NAME in p.read_text("utf-8", "replace") for p in paths if p.is_file())

    # ------------------------------------------------------------------------- flags

    def _shared(self, include: Sequence[str], *, named: bool) -> list[str]:
        binding = self.binding
        folders = [*(["csrc"] if (self.root / "csrc").is_dir() else []), *include]
        return [
            *([f"-D{_NAME}={self.identifier}"] if named else []),
            *binding.defines,
            *(f"-I{folder}" for folder in dict.fromkeys(folders)),
            f"-I{DATA / 'include'}",
        ]

    def _system(self) -> list[str]:
        """Return the directories of headers that are not the project's, pins first."""
        headers = self.binding.headers
        folders = [DATA / "pins", *(headers.path / name for name in self.binding.includes)]
        folders += [one.include for one in self.binding.more]
        return [word for folder in folders for word in ("-isystem", str(folder))]

    def _maps(self) -> list[str]:
        # The last one that fits counts, so outer directories come first.
        return [f"-ffile-prefix-map={a}={b}" for a, b in reversed(self.names().items())]

    def _quiet(self) -> list[str]:
        # A symbol that is unique in the whole process would join two kernels' static variables.
        return ["-fno-gnu-unique"] if self.host.kind == "gcc" else []

    def _host(
        self, source: str, include: Sequence[str], flags: Sequence[str], *, named: bool
    ) -> Unit:
        cuda = self.cuda
        toolkit = [*cuda.include, *cuda.system_include] if cuda else []
        return Unit(
            source,
            (
                *self.host.command,
                f"-std={self.binding.standard}",
                *_OPTIMISED,
                *_HIDDEN,
                *self._quiet(),
                *self._shared(include, named=named),
                *self._system(),
                *(word for folder in toolkit for word in ("-isystem", str(folder))),
                "-include",
                str(DATA / "pins" / "symbols.h"),
                *self._maps(),
                *flags,
            ),
        )

    def _device(
        self,
        source: str,
        include: Sequence[str],
        cuda_flags: Sequence[str],
        host_flags: Sequence[str],
        capabilities: Sequence[str] | None,
        *,
        named: bool,
    ) -> Unit:
        cuda = self.cuda
        assert cuda is not None
        archs = self._archs(source, capabilities)
        standard = f"-std={self.binding.device_standard}"
        shared = [standard, *_OPTIMISED, *self._shared(include, named=named), *self._system()]
        hidden = ["-fPIC", "-fvisibility=hidden", *self._quiet(), *self._maps(), *host_flags]
        if cuda.route == "nvrtc":
            command = [*self.host.command, *shared, *hidden]
            return Unit(source, tuple(command), archs, cuda, tuple(cuda_flags))
        command = [
            str(cuda.nvcc),
            "-ccbin",
            self.host.command[0],
            *shared,
            "--expt-relaxed-constexpr",
            *gencode(archs),
            f"-Xcompiler={','.join(hidden)}",
            *cuda_flags,
        ]
        return Unit(source, tuple(command), archs, cuda)

    def _archs(self, source: str, capabilities: Sequence[str] | None) -> tuple[Arch, ...]:
        if not capabilities:
            return sorted_archs(self.served)
        made = loose_intersection(capabilities, [text.removesuffix("+PTX") for text in self.served])
        if not made:
            raise ManifestError(
                f"{source} asks for the capabilities {', '.join(capabilities)}; "
                f"this build is for {', '.join(self.served)}, and none of them fits"
            )
        return made


def machine() -> str:
    """Return the processor that is compiled for."""
    return {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
