"""`kernelmill generate cmake`: a project's variant as CMake files, for those who want CMake.

The text holds no path of this machine: torch or tvm-ffi are asked for theirs when it is configured.
Only `compile_commands.json`, which editors read, has the commands of this machine.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from kernelmill.errors import PackageError
from kernelmill.package.archs import sorted_archs
from kernelmill.package.clean import COMMANDS, FOLDER, GENERATED
from kernelmill.package.contents import contents_of, identifier_of
from kernelmill.package.frameworks import kind_of, python_root
from kernelmill.package.recipe import recipe_of
from kernelmill.package.source_state import source_state
from kernelmill.package.whole_file import replace_file

if TYPE_CHECKING:
    from kernelmill.package.frameworks import Kind
    from kernelmill.package.manifest import Kernel
    from kernelmill.package.matrix import Entry, Project
    from kernelmill.package.recipe import Recipe

__all__ = ["Generated", "generate"]

_HEADER: Final = Path(__file__).with_name("include") / "registration.h"
_COMPILED: Final = (".c", ".cc", ".cpp", ".cxx", ".cu")
_TORCH: Final = "import pathlib, torch; print(pathlib.Path(torch.__file__).parent)"
_TVM_FFI: Final = "import pathlib, tvm_ffi; print(pathlib.Path(tvm_ffi.__file__).parent)"
_INCLUDES: Final[dict[Kind, tuple[str, ...]]] = {
    "stable": ("include",),
    "classic": ("include", "include/torch/csrc/api/include"),
    "tvm-ffi": ("include",),
}
_CLASSIC_VERSION: Final = """
execute_process(
  COMMAND ${Python3_EXECUTABLE} -c "import torch; print('.'.join(torch.__version__.split('.')[:2]))"
  OUTPUT_VARIABLE torch_version OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT torch_version STREQUAL "@VERSION@")
  message(FATAL_ERROR "this is for torch @VERSION@, but torch ${torch_version} is installed")
endif()
"""
_SETUP: Final = '''\
# @MARK@` for @VARIANT@; `kernelmill clean` removes it.
"""`python setup.py build_kernel` builds with CMake into build/@VARIANT@."""

import subprocess
from pathlib import Path

from setuptools import Command, setup

ROOT = Path(__file__).resolve().parent
VARIANT = "@VARIANT@"


class BuildKernel(Command):
    """Configure, build and install with CMake."""

    description = "build the kernel with CMake"
    user_options = []

    def initialize_options(self):
        pass

    def finalize_options(self):
        pass

    def run(self):
        made, place = ROOT / "@FOLDER@" / "made", ROOT / "build" / VARIANT
        prefix = f"-DCMAKE_INSTALL_PREFIX={place}"
        release = ["-DCMAKE_BUILD_TYPE=Release", prefix]
        subprocess.run(["cmake", "-S", ROOT, "-B", made, *release], check=True)
        subprocess.run(["cmake", "--build", made, "--parallel"], check=True)
        subprocess.run(["cmake", "--install", made], check=True)


setup(name="@NAME@", version="@RELEASE@", packages=[], cmdclass={"build_kernel": BuildKernel})
'''
_PYPROJECT: Final = """\
# @MARK@`; `kernelmill clean` removes it.
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
"""


@dataclass(frozen=True, slots=True)
class Generated:
    """A file that was written, or why it was not."""

    path: Path
    kept: str = ""


def generate(project: Project, entry: Entry) -> tuple[Generated, ...]:
    """Write the files of one variant into its project.

    A file of the same name that kernelmill did not write stays as it is.

    Raises
    ------
    PackageError
        The variant has no machine code.
    ToolchainError
        Compilers or headers are missing.
    """
    variant = entry.variant
    if variant.noarch:
        raise PackageError(f"{variant} has no machine code, so there is nothing for CMake to build")
    state = source_state(project.root)
    identifier = identifier_of(entry.manifest, variant.backend.name, "cmake")
    recipe = recipe_of(project, entry, identifier)
    contents = contents_of(project, entry, identifier, state, recipe=recipe)
    words = {
        "@MARK@": f"{GENERATED} cmake",
        "@VARIANT@": str(variant),
        "@FOLDER@": FOLDER,
        "@NAME@": project.name,
        "@RELEASE@": project.version or str(project.manifest.general.version),
    }
    root = project.root
    files = {
        root / "CMakeLists.txt": _cmake_text(project, entry, recipe),
        root / "setup.py": _filled(_SETUP, words),
        root / "pyproject.toml": _filled(_PYPROJECT, words),
        root / COMMANDS: _commands(root, recipe),
        root / FOLDER / "_ops.py": contents.texts["_ops.py"],
        root / FOLDER / "metadata.json": contents.metadata.text(),
        root / FOLDER / "registration.h": _HEADER.read_text(encoding="utf-8"),
    }
    return tuple(_write(path, text) for path, text in files.items())


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def _write(path: Path, text: str) -> Generated:
    if path.exists() and not _is_ours(path):
        return Generated(path, "it is there already, and kernelmill did not write it")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text)
    return Generated(path)


def _is_ours(path: Path) -> bool:
    if path.parent.name == FOLDER:
        return True
    if path.name == COMMANDS:  # JSON has no comments: the directory beside it tells
        return (path.parent / FOLDER).is_dir()
    with path.open(encoding="utf-8", errors="replace") as file:
        return GENERATED in file.readline()


# ----------------------------------------------------------------------------- CMakeLists.txt


def _cmake_text(project: Project, entry: Entry, recipe: Recipe) -> str:
    variant, kind, target = entry.variant, recipe.binding.kind, recipe.identifier
    cuda = variant.backend.name == "cuda"
    binding = recipe.binding
    kernels = entry.manifest.kernels_of(variant.backend.name)
    names = [*binding.sources, *(name for kernel in kernels for name in kernel.src)]
    sources = sorted({name for name in names if PurePosixPath(name).suffix in _COMPILED})
    include = ["csrc", *binding.include, *(f for k in kernels for f in k.include or ())]
    standards = {"CXX": binding.standard, "CUDA": binding.device_standard}
    defines = [text.removeprefix("-D") for text in binding.defines]
    libraries = [name.removeprefix("lib").partition(".so")[0] for name in binding.libraries]
    parts = [
        f"# {GENERATED} cmake` for {variant}; `kernelmill clean` removes it.",
        f"#   cmake -S . -B {FOLDER}/made -DCMAKE_INSTALL_PREFIX=build/{variant}",
        f"#   cmake --build {FOLDER}/made && cmake --install {FOLDER}/made",
        "cmake_minimum_required(VERSION 3.22)",
        "if(NOT CMAKE_BUILD_TYPE)",
        "  set(CMAKE_BUILD_TYPE Release)",
        "endif()",
        f"project({project.name} LANGUAGES CXX{' CUDA' if cuda else ''})",
        "find_package(Python3 REQUIRED COMPONENTS Interpreter)",
        *(["find_package(CUDAToolkit REQUIRED)"] if cuda else []),
        "execute_process(",
        f'  COMMAND ${{Python3_EXECUTABLE}} -c "{_TVM_FFI if kind == "tvm-ffi" else _TORCH}"',
        "  OUTPUT_VARIABLE framework OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)",
        _check_of_version(entry),
        _call("add_library", target, "MODULE", *sources),
        _call("set_target_properties", target, "PROPERTIES", *_properties(recipe, standards)),
        _call(
            "target_compile_definitions", target, "PRIVATE", *_definitions(kind, target, defines)
        ),
        _call("target_include_directories", target, "PRIVATE", *dict.fromkeys(include), FOLDER),
        _call(
            "target_include_directories",
            target,
            "SYSTEM PRIVATE",
            *(f"${{framework}}/{folder}" for folder in _INCLUDES[kind]),
        ),
        _call("target_compile_options", target, "PRIVATE", *_options(binding.flags)),
        *_flags_of_kernels(kernels),
        _call("target_link_directories", target, "PRIVATE", "${framework}/lib"),
        f"target_link_options({target} PRIVATE -Wl,--no-as-needed)",
        _call(
            "target_link_libraries",
            target,
            "PRIVATE",
            *("CUDA::cudart" if name == "cudart" else name for name in libraries),
        ),
        f"install(TARGETS {target} LIBRARY DESTINATION .)",
        _install_python(entry),
        f"install(FILES {FOLDER}/_ops.py {FOLDER}/metadata.json DESTINATION .)",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _call(function: str, target: str, *arguments: str) -> str:
    return f"{function}({target} {' '.join(_quoted(a) for a in arguments)})" if arguments else ""


def _quoted(text: str) -> str:
    if text.startswith('"'):
        return text
    plain = all(c.isalnum() or c in "_-./:=+,${}<> " for c in text)
    return text if plain else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _check_of_version(entry: Entry) -> str:
    if kind_of(entry.variant) != "classic":
        return ""
    return _CLASSIC_VERSION.strip("\n").replace("@VERSION@", str(entry.variant.framework.version))


def _properties(recipe: Recipe, standards: dict[str, str]) -> list[str]:
    found = [f'PREFIX "" SUFFIX {recipe.binding.suffix} SKIP_BUILD_RPATH ON']
    found.append("CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden")
    found.append("VISIBILITY_INLINES_HIDDEN ON")
    for language, standard in standards.items():
        number = standard.removeprefix("c++")
        found.append(f"{language}_STANDARD {number} {language}_STANDARD_REQUIRED ON")
    if recipe.archs:
        chips = [
            f"{arch.sm}{'' if arch.ptx else '-real'}"
            for arch in sorted_archs(map(str, recipe.archs))
        ]
        found.append(f'CUDA_ARCHITECTURES "{";".join(chips)}"')
    return [word for text in found for word in shlex.split(text, posix=False)]


def _definitions(kind: Kind, target: str, defines: list[str]) -> list[str]:
    return defines if kind == "tvm-ffi" else [f"TORCH_EXTENSION_NAME={target}", *defines]


def _options(flags: tuple[str, ...]) -> list[str]:
    return [f"$<$<COMPILE_LANGUAGE:CXX>:{flag}>" for flag in ("-fno-gnu-unique", *flags)]


def _flags_of_kernels(kernels: tuple[Kernel, ...]) -> list[str]:
    """Return the flags that each kernel wants for its own sources."""
    found = []
    for kernel in kernels:
        for suffixes, flags in (((".cu",), kernel.cuda_flags), (_COMPILED[:-1], kernel.cxx_flags)):
            sources = [source for source in kernel.src if source.endswith(suffixes)]
            if flags and sources:
                options = _quoted(";".join(flags))
                named = " ".join(map(_quoted, sources))
                found.append(
                    f"set_property(SOURCE {named} APPEND PROPERTY COMPILE_OPTIONS {options})"
                )
    return found


def _install_python(entry: Entry) -> str:
    endings = ["py", *(entry.manifest.framework.pyext or ())]
    patterns = " ".join(f'PATTERN "*.{ending}"' for ending in dict.fromkeys(endings))
    return (
        f"install(DIRECTORY {python_root(entry.manifest)}/ DESTINATION . FILES_MATCHING {patterns})"
    )


# ----------------------------------------------------------------------------- editors


def _commands(root: Path, recipe: Recipe) -> str:
    """Return what editors read to know how each source is compiled on this machine."""
    rows = [
        {
            "directory": str(root),
            "file": unit.source,
            "arguments": [*unit.command, "-c", unit.source],
        }
        for unit in recipe.units
    ]
    return json.dumps(rows, indent=2) + "\n"
