"""Manifests for tests: written out from tables, drawn at random, and broken in one place."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from kernelmill.package.manifest import BACKENDS, LIBRARIES

__all__ = ["CASES", "broken_tables", "tables", "write"]


def write(table: dict[str, object], above: str = "") -> str:
    """Write a table as TOML."""
    simple = {k: v for k, v in table.items() if not isinstance(v, dict)}
    lines = [f"{key_of(k)} = {value_of(v)}\n" for k, v in simple.items()]
    for name, inner in table.items():
        if isinstance(inner, dict):
            full = f"{above}.{key_of(name)}" if above else key_of(name)
            lines.append(f"\n[{full}]\n{write(inner, full)}")
    return "".join(lines)


def key_of(name: str) -> str:
    return (
        name
        if name and all(c.isascii() and (c.isalnum() or c in "-_") for c in name)
        else text_of(name)
    )


def text_of(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def value_of(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(value_of, value))}]"
    assert isinstance(value, dict)
    return "{" + ", ".join(f"{key_of(k)} = {value_of(v)}" for k, v in value.items()) + "}"


# ----------------------------------------------------------------------------- drawn at random

words = st.text('abcxyz019-_. /é"\\', max_size=8)
lists = st.lists(words, max_size=3)
versions = st.sampled_from(["2.10", "2.0", "0.0", "12.8", " 13.0 ", "+2.1", "02.010"])
urls = st.sampled_from(
    ["https://a.b/c", "git@github.com:o/r.git", "ssh://git@h/x", "git+https://h:80/x", "git:x",
     "http://[::1]/", "HTTPS://A/", "https://ü.de", "a@b:c"]
)  # fmt: skip
bad_urls = st.sampled_from(
    ["", "x", "ftp://a/b", "https://", "https://a:99999/", "github.com:o/r", "https://a b/",
     "git@h:/abs", "https://%/", "https://1.2.3.4.5/", "https://xn--a/", "http://[::/"]
)  # fmt: skip


def optional(**keys: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries({}, optional={k.replace("_", "-"): v for k, v in keys.items()})


depends = st.lists(
    st.one_of(
        st.fixed_dictionaries({"repo-id": words, "version": st.integers(0, 9)}),
        st.fixed_dictionaries({"repo-id": words, "revision": words}),
    ),
    max_size=2,
)


def general(edition: int) -> st.SearchStrategy[dict[str, object]]:
    newer: dict[str, st.SearchStrategy[object]] = (
        {"kernel-depends": depends} if edition == 5 else {}
    )
    own = {"python-depends": lists, **newer}
    python = st.fixed_dictionaries({}, optional={"python-depends": lists})
    cuda = st.fixed_dictionaries({}, optional={"minver": versions, "maxver": versions, **own})
    inner = st.fixed_dictionaries({}, optional=own)
    return st.fixed_dictionaries(
        {
            "name": st.sampled_from(["relu", "a1", "my-kernel", "k--2"]),
            "version": st.integers(0, 2**63 - 1),
            "license": words,
            "backends": st.lists(st.sampled_from(BACKENDS), max_size=4),
            **({"edition": st.just(5)} if edition == 5 else {}),
        },
        optional={
            "upstream": urls,
            "source": urls,
            "hub": optional(repo_id=words, branch=words),
            "cuda": cuda,
            "neuron": inner,
            "xpu": inner,
            **own,
            **({"tpu": python} if edition == 5 else {}),
        },
    )


def framework(edition: int) -> st.SearchStrategy[tuple[str, dict[str, object]]]:
    abi = (
        versions
        if edition == 4
        else st.one_of(versions, st.dictionaries(st.sampled_from(BACKENDS), versions))
    )
    torch = optional(
        src=lists, include=lists, minver=versions, maxver=versions, pyext=lists, cxx_flags=lists,
        stable_abi=abi,
    )  # fmt: skip
    noarch = st.fixed_dictionaries(
        {}, optional={"pyext": lists, "cuda_capabilities": lists, "rocm_archs": lists}
    )
    tvm = st.fixed_dictionaries(
        {"src": lists}, optional={"include": lists, "pyext": lists, "cxx-flags": lists}
    )
    return st.one_of(
        torch.map(lambda t: ("torch", t)),
        noarch.map(lambda t: ("torch-noarch", t)),
        tvm.map(lambda t: ("tvm-ffi", t)),
    )


_EXTRA = {
    "cpu": {},
    "metal": {},
    "cuda": {"cuda-capabilities": lists, "cuda-flags": lists, "cuda-minver": versions},
    "rocm": {"rocm-archs": lists, "hip-flags": lists},
    "xpu": {"sycl-flags": lists},
}
kernels = st.sampled_from(sorted(_EXTRA)).flatmap(
    lambda backend: st.fixed_dictionaries(
        {
            "backend": st.just(backend),
            "depends": st.lists(st.sampled_from(LIBRARIES), max_size=2),
            "src": lists,
        },
        optional={"include": lists, "cxx-flags": lists, **_EXTRA[backend]},
    )
)


def _together(parts: tuple[dict, tuple[str, dict], dict | None]) -> dict[str, object]:
    general_table, (name, framework_table), kernel_table = parts
    table: dict[str, object] = {"general": general_table, name: framework_table}
    return table if kernel_table is None else table | {"kernel": kernel_table}


tables = st.sampled_from([4, 5]).flatmap(
    lambda edition: st.tuples(
        general(edition),
        framework(edition),
        st.one_of(st.none(), st.dictionaries(words.filter(bool), kernels, max_size=3)),
    ).map(_together)
)


# ----------------------------------------------------------------------------- broken in one place

_OTHERS = ["text", 0, -1, 1.5, True, [], ["a", 1], {}, {"a": 1}, "2.x", "2.1.0", "2", [[]], "cpu", 2**63, [{}]]  # fmt: skip
_KEYS = ["minver", "kernel-depends", "cuda_capabilities", "cuda-capabilities", "src", "x", "edition",
         "python-depends", "stable-abi", "torch", "torch-noarch", "tvm-ffi", "tpu", "Name"]  # fmt: skip


def _places(table: dict[str, object], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [above]
    for name, value in table.items():
        if isinstance(value, dict):
            found += _places(value, (*above, name))
    return found


@st.composite
def broken_tables(draw: st.DrawFn) -> dict[str, object]:
    """A manifest in which a key is lost, renamed, new, or holds another kind of value."""
    table = draw(tables)
    place = draw(st.sampled_from(_places(table)))
    inner: dict = table
    for name in place:
        inner = inner[name]
    kind = draw(st.sampled_from(["lose", "new", "other", "rename", "url", "value"]))
    key = draw(st.sampled_from(sorted(inner))) if inner else draw(st.sampled_from(_KEYS))
    if kind == "lose":
        inner.pop(key, None)
    elif kind == "new":
        inner[draw(st.sampled_from(_KEYS))] = draw(st.sampled_from(_OTHERS))
    elif kind == "rename":
        inner[draw(st.sampled_from(_KEYS))] = inner.pop(key, 1)
    elif kind == "url":
        table["general"]["upstream"] = draw(st.one_of(urls, bad_urls))
    elif kind == "value":
        table["general"]["name"] = draw(
            st.sampled_from(["a", "A1", "a_b", "a-", "-a", "1a", "a1\n"])
        )
    else:
        inner[key] = draw(st.sampled_from(_OTHERS))
    return table


# ----------------------------------------------------------------------------- written by hand

_GENERAL = """[general]
name = "relu"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]
"""
_TORCH = '[torch]\nsrc = ["binding.cpp"]\n'
CASES = {
    "edition 5": _GENERAL + _TORCH,
    "edition 4": _GENERAL.replace("edition = 5\n", "") + _TORCH,
    "a byte order mark": "\ufeff" + _GENERAL + _TORCH,
    "line ends of Windows": (_GENERAL + _TORCH).replace("\n", "\r\n"),
    "no framework": _GENERAL,
    "two frameworks": _GENERAL + _TORCH + "[torch-noarch]\n",
    "a tool section": _GENERAL + _TORCH + "[tool.x]\n",
    "edition 6": _GENERAL.replace("edition = 5", "edition = 6") + _TORCH,
    "an empty file": "",
    "no TOML": "=",
    "a key twice": _GENERAL + 'name = "x1"\n' + _TORCH,
    "a section twice": _GENERAL + _TORCH + _TORCH,
    "a table after its key": _GENERAL + "cuda = 1\n[general.cuda]\n" + _TORCH,
    "an inline table over lines": _GENERAL + '[torch]\nstable-abi = {\n cpu = "2.10"\n}\n',
    "an escape of TOML 1.1": _GENERAL.replace("Apache", "\\e") + _TORCH,
    "a number that is too large": _GENERAL.replace("version = 1", f"version = {2**64}") + _TORCH,
    "a number of 5,000 digits": _GENERAL.replace("version = 1", f"version = {'9' * 5000}") + _TORCH,
    "a date": _GENERAL.replace('"Apache-2.0"', "1979-05-27") + _TORCH,
    "a day that does not exist": _GENERAL.replace('"Apache-2.0"', "1979-02-30") + _TORCH,
    "a NUL": _GENERAL.replace("Apache", "\\u0000") + _TORCH,
    "half a surrogate": _GENERAL.replace("Apache", "\\ud800") + _TORCH,
    "no kernels": _GENERAL + _TORCH + "[kernel]\n",
    "an array of kernels": _GENERAL + _TORCH + "[[kernel]]\n",
    "a stable ABI per backend": _GENERAL + '[torch]\nstable-abi = { cuda = "2.10" }\n',
    "a stable ABI of nothing": _GENERAL + "[torch]\nstable-abi = {}\n",
    "kebab case in noarch": _GENERAL + '[torch-noarch]\ncuda-capabilities = ["9.0"]\n',
}
