"""Older forms of `build.toml` brought to edition 5, one step after another. Writes no file.

Five forms have been in use. They tell themselves apart by what they hold:

=========  =============================================================================
edition 5  `general.edition = 5`
v4         no edition, but a version, a licence and a framework section
v3         `general.backends`, where licence, version or framework may be missing
v2         no `general.backends`; `general.universal`, `general.cuda-minver`
v1         kernels with a `language` and without a `backend`; `torch.universal`
=========  =============================================================================

Each step is a function from one table to the next; a file that only needs lines more keeps its
comments, any other is written anew.
"""

from __future__ import annotations

import copy
import difflib
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import ManifestError
from kernelmill.package.manifest import Manifest, manifest_of, parse_toml
from kernelmill.package.manifest_readers import texts, wrong
from kernelmill.package.toml_text import write_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Migration", "form_of", "migrate"]

Table = dict[str, Any]  # Any: what TOML can hold

FORMS: Final = ("v1", "v2", "v3", "v4", "edition 5")
_FRAMEWORKS: Final = ("torch", "torch-noarch", "tvm-ffi")
# What `universal = true` meant: every backend that was known then.
_UNIVERSAL: Final = ["cann", "cpu", "cuda", "metal", "neuron", "rocm", "xpu"]
# A Python package that belongs to one backend today.
_OF_CUDA: Final = "nvidia-cutlass-dsl"
# A library that has another name today.
_RENAMED: Final = {"cutlass_sycl": "sycl_tla"}
_GENERAL: Final = ("name", "version", "edition", "license", "upstream", "source", "backends")


@dataclass(frozen=True, slots=True)
class Migration:
    """A manifest in edition 5: its text, what it says, and from which form it came.

    `kept` tells whether the comments of the file are still there; `notes` what was decided.
    """

    form: str
    before: str
    text: str
    manifest: Manifest
    kept: bool
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the file has to be written."""
        return self.text != self.before

    def diff(self) -> str:
        """Return the change as a unified diff, "" for none."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.text.splitlines(keepends=True),
            f"build.toml ({self.form})",
            "build.toml (edition 5)",
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def migrate(text: str, *, licence: str = "") -> Migration:
    r"""Bring a manifest of any form to edition 5.

    `licence` is the identifier that stands in for a missing one, which only older forms allow.

    Raises
    ------
    ManifestError
        It is no manifest of any form, or a licence is needed and none was given.

    Examples
    --------
    >>> from kernelmill.package.migrate import migrate
    >>> old = '[general]\nname = "relu"\nuniversal = true\n[torch]\npyext = ["py"]\n'
    >>> found = migrate(old, licence="MIT")
    >>> found.form, found.manifest.framework_name, found.manifest.general.version
    ('v2', 'torch-noarch', 1)
    """
    table = parse_toml(text)
    form = form_of(table)
    notes: list[str] = []
    if form != FORMS[-1]:
        _require_shapes(table)
    new = copy.deepcopy(table)
    for step in _STEPS[FORMS.index(form) :]:
        step(new, notes)
    _name_licence(new, licence, notes)
    _lengthen_versions(new)
    new = _ordered(new) if form != FORMS[-1] else new
    manifest = manifest_of(new)
    edited = _edited(text, table, new)
    after = write_toml(new) if edited is None else edited
    if edited is None and "#" in text:
        notes.append("the file was written anew; its comments are lost")
    return Migration(form, text, after, manifest, edited is not None, tuple(notes))


def form_of(table: Mapping[str, Any]) -> str:  # Any: what TOML can hold
    """Return which of the five forms a table has.

    Raises
    ------
    ManifestError
        It has no section [general].
    """
    general, kernels = table.get("general"), table.get("kernel", {})
    if not isinstance(general, dict):
        raise ManifestError("build.toml: the section [general] is missing", path="general")
    if "edition" in general:
        return "edition 5"
    sections = (
        [k for k in kernels.values() if isinstance(k, dict)] if isinstance(kernels, dict) else []
    )
    torch = table.get("torch")
    if any("backend" not in k for k in sections) or (
        isinstance(torch, dict) and "universal" in torch
    ):
        return "v1"
    if "backends" not in general:
        return "v2"
    complete = {"version", "license"} <= general.keys() and any(f in table for f in _FRAMEWORKS)
    return "v4" if complete else "v3"


def _require_shapes(table: Table) -> None:
    """Refuse what the steps could not take apart; what they do not touch is judged at the end."""
    general, kernels = table["general"], table.get("kernel", {})
    _require(kernels, dict, "kernel")
    for name in _FRAMEWORKS:
        _require(table.get(name, {}), dict, name)
    _require(general.get("cuda", {}), dict, "general.cuda")
    for name, kernel in kernels.items():
        _require(kernel, dict, f"kernel.{name}")
        _require(kernel.get("language", ""), str, f"kernel.{name}.language")
        _require(kernel.get("backend", ""), str, f"kernel.{name}.backend")
        texts(kernel.get("depends", []), f"kernel.{name}.depends")
    for name, inner in (("general", general), ("general.cuda", general.get("cuda", {}))):
        texts(inner.get("python-depends", []), f"{name}.python-depends")


def _require(value: object, kind: type, path: str) -> None:
    if not isinstance(value, kind):
        raise wrong(path, "a table" if kind is dict else "a text", value)


# ----------------------------------------------------------------------------- the steps


def _from_1(table: Table, notes: list[str]) -> None:
    """Kernels had a language: CUDA, CUDA and its translation to HIP, or Metal."""
    torch = table.get("torch")
    if isinstance(torch, dict) and torch.pop("universal", False):
        table["general"]["universal"] = True
    kernels: Table = {}
    for name, kernel in table.get("kernel", {}).items():
        language = kernel.pop("language", "cuda")
        if language == "metal":
            kernels[name] = {"backend": "metal"} | kernel
            continue
        if language not in ("cuda", "cuda-hipify"):
            raise ManifestError(
                f"build.toml: `kernel.{name}.language` is {language!r}; "
                "known are cuda, cuda-hipify, metal",
                path=f"kernel.{name}.language",
            )
        plain = {k: v for k, v in kernel.items() if k != "rocm-archs"}
        kernels[name] = {"backend": "cuda"} | plain
        if language == "cuda-hipify":
            _add_rocm(kernels, table["kernel"], name, kernel, notes)
    if kernels:
        table["kernel"] = kernels


def _add_rocm(kernels: Table, taken: Table, name: str, kernel: Table, notes: list[str]) -> None:
    rocm = f"{name}_rocm"
    if rocm in taken:
        raise ManifestError(
            f"build.toml: `kernel.{name}` needs a twin for ROCm, "
            f"but `kernel.{rocm}` is there already",
            path=f"kernel.{rocm}",
        )
    kernels[rocm] = {"backend": "rocm"} | {
        k: v for k, v in kernel.items() if k != "cuda-capabilities"
    }
    notes.append(f"`kernel.{name}` was CUDA translated to HIP: `kernel.{rocm}` was added")


def _from_2(table: Table, notes: list[str]) -> None:
    """Backends were those of the kernels; CUDA's range stood in [general]."""
    general = table["general"]
    universal = general.pop("universal", False)
    kernels = table.get("kernel", {})
    general["backends"] = (
        list(_UNIVERSAL)
        if universal
        else sorted({kernel["backend"] for kernel in kernels.values()})
    )
    cuda = {
        new: general.pop(old)
        for old, new in (("cuda-minver", "minver"), ("cuda-maxver", "maxver"))
        if old in general
    }
    if cuda:
        general["cuda"] = cuda
    if universal and not kernels:
        torch = table.pop("torch", {})
        if torch.get("src"):
            raise ManifestError(
                "build.toml: `general.universal` means Python alone, but `torch.src` names sources",
                path="torch.src",
            )
        table["torch-noarch"] = {k: v for k, v in torch.items() if k == "pyext"}
        notes.append("a universal kernel is [torch-noarch] today")


def _from_3(table: Table, notes: list[str]) -> None:
    """Fill in the version, which was 1, and the framework, which was Python alone."""
    general = table["general"]
    if "version" not in general:
        general["version"] = 1
        notes.append("`general.version` was missing: it is 1")
    if not any(name in table for name in _FRAMEWORKS):
        table["torch-noarch"] = {}
        notes.append("no section says how the kernel is loaded: it is [torch-noarch]")
    for key in [k for k in general.get("python-depends", []) if k == _OF_CUDA]:
        general["python-depends"].remove(key)
        general.setdefault("cuda", {}).setdefault("python-depends", []).append(key)
        notes.append(f"the Python package {key} belongs to [general.cuda]")
    if general.get("python-depends") == []:
        del general["python-depends"]


def _from_4(table: Table, notes: list[str]) -> None:
    """Editions got a number, names dashes, a library another name."""
    general = table["general"]
    general["edition"] = 5
    name = general.get("name")
    if isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_-]*[a-z0-9]", name) and "_" in name:
        general["name"] = name.replace("_", "-")
        notes.append(f"names have dashes: {general['name']}; Python still imports {name}")
    for key, kernel in table.get("kernel", {}).items():
        for old in set(kernel.get("depends", [])) & _RENAMED.keys():
            kernel["depends"] = [_RENAMED.get(text, text) for text in kernel["depends"]]
            notes.append(f"`kernel.{key}` depends on {_RENAMED[old]}, which was {old}")


_STEPS: Final[tuple[Callable[[Table, list[str]], None], ...]] = (_from_1, _from_2, _from_3, _from_4)


def _name_licence(table: Table, licence: str, notes: list[str]) -> None:
    general = table["general"]
    if "license" in general:
        return
    if not licence:
        raise ManifestError(
            "build.toml: `general.license` is missing, and edition 5 needs it",
            path="general.license",
            hint="`kernelmill migrate --license Apache-2.0` writes one of the Hub's identifiers",
        )
    general["license"] = licence
    notes.append(f"`general.license` was missing: it is {licence}")


def _lengthen_versions(table: Table) -> None:
    """Versions have two numbers today: 13 becomes 13.0."""
    places = [table.get("torch"), table["general"].get("cuda"), *_tables(table.get("kernel"))]
    for place in places:
        for key in ("minver", "maxver", "stable-abi", "cuda-minver"):
            text = place.get(key) if isinstance(place, dict) else None
            if isinstance(text, str) and re.fullmatch(r"\s*[0-9]+\s*", text):
                place[key] = f"{text.strip()}.0"


def _tables(value: object) -> list[Table]:
    return [v for v in value.values() if isinstance(v, dict)] if isinstance(value, dict) else []


def _ordered(table: Table) -> Table:
    general = table["general"]
    first = {name: general[name] for name in _GENERAL if name in general}
    return {"general": first | general} | table | {"general": first | general}


# ----------------------------------------------------------------------------- comments are kept

_HEADER: Final = re.compile(r"^[ \t]*\[[ \t]*general[ \t]*\][ \t]*(?:#.*)?\r?$", re.MULTILINE)
_NAME: Final = re.compile(r"^[ \t]*name[ \t]*=.*$", re.MULTILINE)


def _renamed(text: str, start: int, before: Table, after: Table) -> str:
    """Write another name in the place of the old one."""
    line = _NAME.search(text, start)
    if line is None or before.get("name") == after["name"]:
        return text
    quoted = rf"([\"'])({re.escape(str(before.get('name')))})\1"
    changed = re.sub(quoted, lambda match: f"{match[1]}{after['name']}{match[1]}", line[0], count=1)
    return text[: line.start()] + changed + text[line.end() :]


def _edited(text: str, before: Table, after: Table) -> str | None:
    """Return the text with the new keys put in, None where that does not say the same."""
    if before == after:
        return text
    header = _HEADER.search(text)
    if header is None:
        return None
    text = _renamed(text, header.end(), before["general"], after["general"])
    name = _NAME.search(text, header.end())
    at = name.end() if name else header.end()
    newline = "\r\n" if "\r\n" in text else "\n"
    new = {k: v for k, v in after["general"].items() if k not in before["general"]}
    lines = write_toml({k: v for k, v in new.items() if not isinstance(v, dict)}).rstrip("\n")
    at -= text[at - 1] == "\r"
    added = "".join(f"{newline}{line}" for line in lines.split("\n") if line)
    result = text[:at] + added + text[at:]
    sections = {k: v for k, v in after.items() if k not in before}
    if sections:
        gap = newline if result.endswith("\n") else newline * 2
        result += gap + write_toml(sections).replace("\n", newline)
    try:
        return result if tomllib.loads(result.replace("\r\n", "\n")) == after else None
    except tomllib.TOMLDecodeError:
        return None
