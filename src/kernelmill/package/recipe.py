"""How one variant is compiled: its units with all flags, and how they are linked. Runs nothing.

Paths in commands are relative to the project; every absolute one has a name of its own that stands
in the binary and in cache keys in its place.
"""

from __future__ import annotations

import platform
import posixpath
import shlex
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from kernelmill.cache.key import digest
from kernelmill.errors import ManifestError, NotImplementedHere, ToolchainError
from kernelmill.package.archs import Arch, gencode, loose_intersection, sorted_archs
from kernelmill.package.build_cache import build_cache
from kernelmill.package.cutlass import cutlass_folders, cutlass_headers, stands_in
from kernelmill.package.frameworks import binding_of, kind_of
from kernelmill.package.includes import Closure, closure_of
from kernelmill.package.nvcc import default_archs, find_cuda
from kernelmill.package.objects import Unit
from kernelmill.toolchain.host import find_host_compiler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kernelmill.package.frameworks import Binding
    from kernelmill.package.headers import HeaderSet
    from kernelmill.package.manifest import Kernel
    from kernelmill.package.matrix import Entry, Project
    from kernelmill.package.nvcc import Cuda
    from kernelmill.toolchain.host import HostCompiler

__all__ = ["DATA", "Recipe", "recipe_of"]

DATA: Final = Path(__file__).parent
_HOST_SUFFIXES: Final = frozenset({".cpp", ".cc", ".cxx", ".c"})
_DEVICE_SUFFIX: Final = ".cu"
_HEADERS: Final = frozenset({".h", ".hpp", ".hh", ".hxx", ".cuh", ".inl", ".inc", ".ipp"})
_PINS: Final = ("exception_ptr.cpp", "libstdcxx.cpp")
_NAME: Final = "TORCH_EXTENSION_NAME"
_TVM_FFI_NAME: Final = "TVM_FFI_EXTENSION_NAME"
# What tells a source how it is built; one that asks for nothing of it is the same in all variants.
_ASKED: Final = frozenset({
    _NAME, _TVM_FFI_NAME, "TORCH_TARGET_VERSION", "Py_LIMITED_API", "CPU_KERNEL", "CUDA_KERNEL",
    "USE_CUDA", "ENABLE_FP8",
})  # fmt: skip
_OPTIMISED: Final = ("-O3", "-DNDEBUG")
_HIDDEN: Final = ("-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a variant with machine code is made from.

    `names` says what absolute directories are called; `archs` is all that device code is made for;
    `identity` tells host compilers and their data apart; `headers` are all that are not the
    project's; `notes` say where something stands in for what a build takes else.
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
    headers: tuple[HeaderSet, ...]
    notes: tuple[str, ...] = ()

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
        """Return the units with what others must not import from libstdc++, if any."""
        if self.host.kind == "zig":
            return ()
        flags = (f"-std={self.binding.standard}", *_OPTIMISED, *_HIDDEN)
        command = (*self.host.command, *flags, f"-ffile-prefix-map={DATA}=/kernelmill")
        return tuple(Unit(str(DATA / "pins" / name), command) for name in _PINS)


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
    binding = binding_of(variant, entry.manifest, cuda.include if cuda else ())
    served = tuple(archs or (default_archs(version) if version else ()))
    found = {kernel.depends: cutlass_headers(kernel.depends) for kernel in kernels}
    cutlass = {depends: headers for depends, headers in found.items() if headers is not None}
    maker = _Maker(project.root, identifier, binding, host, cuda, served, cutlass)
    units = [*maker.units_of_binding(entry.manifest.framework_name), *maker.units_of(kernels)]
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
        identity=_identity(host),
        headers=maker.headers(),
        notes=tuple(maker.notes()),
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


def _identity(host: HostCompiler) -> str:
    data = [
        (path.name, path.read_bytes())
        for folder in ("pins", "pins/sys", "include", "nvrtc", "python")
        for path in sorted((DATA / folder).iterdir())
        if path.is_file()
    ]
    return digest(host=host.identity, data=data)


@dataclass(frozen=True, slots=True)
class _Reads:
    """What a source may read that is not the project's: only that is in its command.

    So a source that knows neither torch nor the module's name is compiled once for all variants.
    """

    name: bool = True
    framework: bool = True
    toolkit: bool = True


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes units: what all sources of one variant share."""

    root: Path
    identifier: str
    binding: Binding
    host: HostCompiler
    cuda: Cuda | None
    served: tuple[str, ...]
    cutlass: Mapping[tuple[str, ...], HeaderSet]

    def headers(self) -> tuple[HeaderSet, ...]:
        """Return all sets of headers that are not the project's, each once."""
        binding, others = self.binding, {one.version: one for one in self.cutlass.values()}
        return (binding.headers, *binding.more, *(others[key] for key in sorted(others)))

    def notes(self) -> Iterator[str]:
        """Yield where headers stand in for those that the manifest or the release names."""
        yield from filter(None, (stands_in(names, one) for names, one in self.cutlass.items()))
        for one in self.headers():
            if one.read == "installed":
                yield (
                    f"the headers of {one.project} {one.version} are those of the installed "
                    "package: its wheel could not be fetched"
                )
        if self.binding.kind == "classic" and self.cuda is not None and not self.binding.more:
            yield "the headers of cuBLAS, cuSOLVER and cuSPARSE are those of the toolkit"

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
        for one in self.cutlass.values():
            found[str(one.path)] = f"/{one.project}-{one.version}-{one.tree[:12]}"
        found[str(build_cache() / "headers")] = "/headers"
        found[str(DATA)] = "/kernelmill"
        found[str(self.root)] = "."
        return found

    def units_of_binding(self, framework: str) -> Iterable[Unit]:
        binding = self.binding
        for source in self._sources(binding.sources, framework):
            if PurePosixPath(source).suffix == _DEVICE_SUFFIX:
                archs = self._archs(source, None)
                yield self._device(
                    source, binding.include, (), binding.flags, archs, reads=_Reads()
                )
            else:
                yield self._host(source, binding.include, binding.flags, reads=_Reads())

    def units_of(self, kernels: Sequence[Kernel]) -> Iterable[Unit]:
        """Yield the units of all sections; a source of several is compiled once for all."""
        owners: dict[str, list[Kernel]] = {}
        for kernel in filter(self._wanted, kernels):
            for source in self._sources(kernel.src, f"kernel.{kernel.name}"):
                owners.setdefault(source, []).append(kernel)
        for source, own in owners.items():
            yield self._unit_of(source, own)

    def _unit_of(self, source: str, kernels: Sequence[Kernel]) -> Unit:
        include = [folder for kernel in kernels for folder in kernel.include or ()]
        own = [flag for kernel in kernels for flag in (*kernel.cxx_flags, *kernel.cuda_flags)]
        # A flag may include headers, or name them, as well as the source does.
        named = any("include" in flag or "torch" in flag or "ATen" in flag for flag in own)
        reads = _Reads() if named else self._reads(source, include)
        sets = [self.cutlass[k.depends] for k in kernels if k.depends in self.cutlass]
        system = [folder for one in sets for folder in cutlass_folders(one)]
        if PurePosixPath(source).suffix != _DEVICE_SUFFIX:
            flags = _joined(kernel.cxx_flags for kernel in kernels)
            return self._host(source, include, flags, reads=reads, system=system)
        flags = _joined(kernel.cuda_flags for kernel in kernels)
        every = {a for k in kernels for a in self._archs(source, k.cuda_capabilities)}
        archs = tuple(sorted(a for a in every if a.ptx or replace(a, ptx=True) not in every))
        return self._device(source, include, flags, (), archs, reads=reads, system=system)

    def _reads(self, source: str, include: Sequence[str]) -> _Reads:
        path, cuda = self.root / source, self.cuda
        if not path.is_file():
            return _Reads()
        found = closure_of(path, [self.root / folder for folder in self._folders(include)])
        name = not found.words.isdisjoint({_NAME, _TVM_FFI_NAME})
        toolkit = cuda is not None and found.reads([*cuda.include, *cuda.system_include])
        return _Reads(name, self._reads_framework(found), toolkit)

    def _reads_framework(self, found: Closure) -> bool:
        binding = self.binding
        folders = [binding.headers.path / name for name in binding.includes]
        folders += [one.include for one in binding.more]
        return not found.words.isdisjoint(_ASKED) or found.reads(folders)

    def _wanted(self, kernel: Kernel) -> bool:
        if kernel.cuda_minver is None or self.cuda is None:
            return True
        own = tuple(map(int, self.cuda.release.split(".")))
        return own >= kernel.cuda_minver.parts

    def _sources(self, names: Iterable[str], place: str) -> Iterable[str]:
        """Yield the sources to compile, sorted; headers are only looked at."""
        compiled = _HOST_SUFFIXES | ({_DEVICE_SUFFIX} if self.cuda is not None else set())
        for name in sorted(set(map(posixpath.normpath, names))):
            suffix = PurePosixPath(name).suffix
            if suffix in compiled:
                yield name
            elif suffix not in _HEADERS:
                known = " ".join(sorted(compiled | _HEADERS))
                raise ManifestError(
                    f"`{place}.src` names {name}; sources of this backend end in: {known}"
                )

    # ------------------------------------------------------------------------- flags

    def _folders(self, include: Sequence[str]) -> list[str]:
        """Return the project's directories of headers."""
        return [*(["csrc"] if (self.root / "csrc").is_dir() else []), *include]

    def _shared(self, include: Sequence[str], reads: _Reads) -> list[str]:
        binding = self.binding
        names = [_NAME, *([_TVM_FFI_NAME] if binding.kind == "tvm-ffi" else [])]
        return [
            *(f"-D{name}={self.identifier}" for name in names if reads.name),
            *(binding.defines if reads.framework else ()),
            *(f"-I{folder}" for folder in dict.fromkeys(self._folders(include))),
            f"-I{DATA / 'include'}",
        ]

    def _system(self, reads: _Reads, more: Sequence[Path]) -> list[str]:
        """Return the directories of headers that are not the project's, pins first."""
        binding, folders = self.binding, [DATA / "pins"]
        if reads.framework:
            folders += [binding.headers.path / name for name in binding.includes]
            folders += [*(one.include for one in binding.more), DATA / "python"]
        return [word for folder in (*folders, *more) for word in ("-isystem", str(folder))]

    def _maps(self, reads: _Reads) -> list[str]:
        found = self.names()
        if not reads.framework:
            del found[str(self.binding.headers.path)]
        if not reads.toolkit:
            found = {path: name for path, name in found.items() if not name.startswith("/cuda-")}
        # The last one that fits counts, so outer directories come first.
        return [f"-ffile-prefix-map={a}={b}" for a, b in reversed(found.items())]

    def _quiet(self) -> list[str]:
        # A symbol that is unique in the whole process would join two kernels' static variables.
        return ["-fno-gnu-unique"] if self.host.kind == "gcc" else []

    def _host(
        self,
        source: str,
        include: Sequence[str],
        flags: Sequence[str],
        *,
        reads: _Reads,
        system: Sequence[Path] = (),
    ) -> Unit:
        cuda = self.cuda
        toolkit = [*cuda.include, *cuda.system_include] if cuda and reads.toolkit else []
        return Unit(
            source,
            (
                *self.host.command,
                f"-std={self.binding.standard}",
                *_OPTIMISED,
                *_HIDDEN,
                *self._quiet(),
                *self._shared(include, reads),
                *self._system(reads, system),
                *(word for folder in toolkit for word in ("-isystem", str(folder))),
                "-include",
                str(DATA / "pins" / "symbols.h"),
                *self._maps(reads),
                *flags,
            ),
            toolkit=cuda.identity if cuda and reads.toolkit else "",
        )

    def _device(
        self,
        source: str,
        include: Sequence[str],
        cuda_flags: Sequence[str],
        host_flags: Sequence[str],
        archs: tuple[Arch, ...],
        *,
        reads: _Reads,
        system: Sequence[Path] = (),
    ) -> Unit:
        cuda = self.cuda
        assert cuda is not None
        standard = f"-std={self.binding.device_standard}"
        shared = [standard, *_OPTIMISED, *self._shared(include, reads)]
        shared += self._system(reads, system)
        reads = replace(reads, toolkit=True)
        hidden = ["-fPIC", "-fvisibility=hidden", *self._quiet(), *self._maps(reads), *host_flags]
        if cuda.route == "nvrtc":
            command = [*self.host.command, *shared, *hidden]
            return Unit(source, tuple(command), archs, cuda, tuple(cuda_flags), cuda.identity)
        command = [
            str(cuda.nvcc),
            "-ccbin",
            self.host.command[0],
            *shared,
            "--expt-relaxed-constexpr",
            *gencode(archs),
            f"-Xcompiler={','.join(map(_through_shell, hidden))}",
            *cuda_flags,
        ]
        return Unit(source, tuple(command), archs, cuda, toolkit=cuda.identity)

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


def _joined(flags: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the flags of several sections, those that are the same once."""
    return tuple(flag for own in dict.fromkeys(flags) for flag in own)


def _through_shell(word: str) -> str:
    """Return a word that nvcc hands to a shell; a comma would divide it before."""
    return shlex.quote(word).replace(",", "\\,")


def machine() -> str:
    """Return the processor that is compiled for."""
    return {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
