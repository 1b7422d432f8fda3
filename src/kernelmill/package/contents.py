"""What goes into a variant beside machine code: Python files, `_ops.py`, metadata, the SBOM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelmill import __version__
from kernelmill.package import sbom
from kernelmill.package.archs import sorted_archs
from kernelmill.package.artifact import python_files
from kernelmill.package.declared_needs import declared_needs
from kernelmill.package.digest import file_hash
from kernelmill.package.frameworks import kind_of, ops_text, python_root
from kernelmill.package.manifest import TorchNoarch
from kernelmill.package.metadata import Metadata, Provenance
from kernelmill.package.sbom import Part, bill_of_materials

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kernelmill.package.manifest import Manifest
    from kernelmill.package.matrix import Entry, Project
    from kernelmill.package.metadata import GitState
    from kernelmill.package.recipe import Recipe
    from kernelmill.package.source_state import SourceState
    from kernelmill.package.toolchain_lock import Drift

__all__ = ["Contents", "contents_of", "identifier_of"]


@dataclass(frozen=True, slots=True)
class Contents:
    """Files of a variant by name: `texts` are made, `copies` lie in the project."""

    metadata: Metadata
    texts: dict[str, str]
    copies: dict[str, Path]


def identifier_of(manifest: Manifest, backend: str, unique: str) -> str:
    """Return what module, library and namespace of a variant are called.

    Examples
    --------
    >>> from kernelmill.package.contents import identifier_of
    >>> from kernelmill.package.manifest import parse_manifest
    >>> text = '''
    ... [general]
    ... name = "silu-and-mul"
    ... version = 1
    ... license = "MIT"
    ... backends = ["cpu"]
    ... [torch-noarch]
    ... '''
    >>> identifier_of(parse_manifest(text), "cpu", "0a1b2c3")
    '_silu_and_mul_cpu_0a1b2c3'
    """
    return f"_{manifest.general.python_name}_{backend}_{unique}"


def contents_of(
    project: Project,
    entry: Entry,
    identifier: str,
    state: SourceState,
    *,
    recipe: Recipe | None = None,
    drift: Sequence[Drift] = (),
) -> Contents:
    """Return the files of a variant; `recipe` is None where it has no machine code.

    Raises
    ------
    ManifestError
        The Python package is absent, or a link leads out of the project.
    """
    manifest = entry.manifest
    copies = python_files(project.root, python_root(manifest), manifest.framework.pyext or ())
    metadata = _metadata(project, entry, identifier, git=state.git, recipe=recipe, drift=drift)
    kind = kind_of(entry.variant)
    parts = [*_sources(project, recipe, copies), *(_compilers(recipe) if recipe else ())]
    tool = {"name": "kernelmill", "version": __version__}
    texts = {
        "_ops.py": ops_text(kind, identifier),
        sbom.FILE: bill_of_materials(metadata, parts, tool),
    }
    return Contents(metadata, texts, copies)


def _metadata(
    project: Project,
    entry: Entry,
    identifier: str,
    *,
    git: GitState | None,
    recipe: Recipe | None,
    drift: Sequence[Drift],
) -> Metadata:
    manifest, backend = entry.manifest, entry.variant.backend.name
    general = manifest.general
    backend = "cann" if backend == "npu" else backend
    ours: dict[str, Any] = {"framework": kind_of(entry.variant)}  # Any: JSON
    if project.version is not None:
        ours["version"] = project.version
    ours |= declared_needs(project.root, manifest, backend)
    if recipe is not None and recipe.cuda is not None:
        ours["cuda-route"] = recipe.cuda.route
    if drift:
        ours["toolchain-drift"] = [str(one) for one in drift]
    return Metadata(
        name=general.name,
        id=identifier,
        version=general.version,
        license=general.license,
        backend=backend,
        archs=_archs(manifest, backend, recipe),
        python_depends=manifest.python_depends(backend),
        kernel_depends=manifest.kernel_depends(backend),
        upstream=general.upstream,
        source=general.source,
        provenance=Provenance(f"kernelmill {__version__}", None, git),
        kernelmill=ours,
    )


def _archs(manifest: Manifest, backend: str, recipe: Recipe | None) -> tuple[str, ...] | None:
    if recipe is not None:
        return tuple(map(str, recipe.archs)) if recipe.cuda is not None else None
    framework = manifest.framework
    assert isinstance(framework, TorchNoarch)
    if backend == "cuda" and framework.cuda_capabilities:
        return tuple(map(str, sorted_archs(framework.cuda_capabilities)))
    if backend == "rocm" and framework.rocm_archs:
        return tuple(framework.rocm_archs)
    return None


def _sources(project: Project, recipe: Recipe | None, copies: dict[str, Path]) -> Iterable[Part]:
    named = {path.relative_to(project.root).as_posix() for path in copies.values()}
    if recipe is not None:
        manifest, backend = recipe.entry.manifest, recipe.entry.variant.backend.name
        named |= set(recipe.binding.sources)
        named |= {name for kernel in manifest.kernels_of(backend) for name in kernel.src}
    for name in sorted(named):
        yield Part("file", name, sha256=file_hash(project.root / name).hex())


def _compilers(recipe: Recipe) -> Iterable[Part]:
    host, cuda = recipe.host, recipe.cuda
    yield Part("application", host.kind, host.version, note=f"compiles for {host.target}")
    for one in recipe.headers:
        note = f"headers; the sha256 is of the tree of {one.wheel}"
        yield Part("library", one.project, one.version, one.tree, note)
    if cuda is None:
        return
    yield Part("application", "cuda", cuda.release, note=f"device code by {cuda.route}")
    if cuda.host_tools is not None:
        yield Part("application", "cuda host tools", cuda.host_tools.release)
    for wheel in cuda.wheels:
        project, version = wheel.name.split("-")[:2]
        yield Part("library", project.replace("_", "-"), version, wheel.sha256, wheel.name)
