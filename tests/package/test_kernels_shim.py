"""The API of `kernels` on our loader: the same names and signatures, and it does what they document."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import textwrap
from enum import Enum
from pathlib import Path

import pytest

import kernelmill.compat.kernels as shim
from hub_clients import clean, served  # noqa: F401 - fixtures
from kernelmill.config import override
from kernelmill.errors import KernelmillError, PackageError
from kernelmill.package import kernels_shim
from kernelmill.package.dependencies import read_dependencies
from kernelmill.package.lock_make import make_lock, write_lock
from kernelmill.package.registry_hub import HubRegistry
from published_kernels import release, variant_files

theirs = pytest.importorskip("kernels")
# Documented as optional, yet without a default in 0.17.2: both raise TypeError there.
DEFAULTED = {("load_kernel", "lockfile"), ("get_locked_kernel", "lockfile")}


def parameters(function):
    return [
        (p.name, p.kind, p.default)
        for p in inspect.signature(function).parameters.values()
        if p.name != "self"
    ]


def test_the_public_names_are_theirs():
    assert sorted(shim.__all__) == sorted(theirs.__all__)
    assert shim.__version__ == theirs.__version__
    for name in shim.__all__:
        assert getattr(shim, name) is getattr(kernels_shim, name)


FUNCTIONS = [n for n in theirs.__all__ if inspect.isfunction(getattr(theirs, n))]
CLASSES = [n for n in theirs.__all__ if inspect.isclass(getattr(theirs, n))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_of_functions(name):
    found, expected = parameters(getattr(shim, name)), parameters(getattr(theirs, name))
    for one, other in zip(found, expected, strict=True):
        if (name, one[0]) in DEFAULTED:
            assert (one[:2], one[2], other[2]) == (other[:2], None, inspect.Parameter.empty)
        else:
            assert one == other


@pytest.mark.parametrize("name", CLASSES)
def test_members_and_constructors_of_classes(name):
    found, expected = getattr(shim, name), getattr(theirs, name)
    public = {n for n in dir(expected) if not n.startswith("_")}
    if issubclass(expected, Enum):
        public = {member.name for member in expected}
    lacks = public - set(dir(found)) - {"validate"}  # huggingface_hub's own
    assert not lacks - set(getattr(found, "__dataclass_fields__", ()))
    if name == "Metadata":
        for kind in (shim.Metadata, theirs.Metadata):
            with pytest.raises(TypeError):
                kind()
        return
    if not issubclass(expected, Enum):
        assert parameters(found.__init__) == parameters(expected.__init__)


def test_it_is_read_as_they_read_it(tmp_path):
    body = variant_files("kernel-x", "1.2.0", needs=[("org/y", 1), ("org/z", "main")])
    facts = json.loads(body["metadata.json"])
    facts |= {
        "upstream": "https://h/x.git",
        "kernels-minver": "0.17.0",
        "python-depends": ["einops"],
    }
    facts["backend"] = {"type": "cuda", "archs": ["8.0", "9.0a"]}
    text = json.dumps(facts).encode()
    (tmp_path / "metadata.json").write_bytes(text)
    for one in (shim, theirs):
        for m in (one.Metadata.from_bytes(text), one.Metadata.read_from_file(tmp_path / "metadata.json")):  # fmt: skip
            assert (m.id, str(m.name), m.name.python_name) == (facts["id"], "kernel-x", "kernel_x")
            assert (m.version, m.license, m.upstream, m.source) == (
                1,
                "MIT",
                "https://h/x.git",
                None,
            )
            assert m.python_depends == ["einops"]
            assert str(m.kernels_minver).startswith("0.17")
            assert [d.repo_id for d in m.kernel_depends] == ["org/y", "org/z"]
            assert m.backend.archs == ["8.0", "9.0a"]
            assert dict(m.digest.files) == facts["digest"]["files"]
        for bad in (b"{", b"{}"):
            with pytest.raises(ValueError):
                one.Metadata.from_bytes(bad)
        with pytest.raises(OSError, match="No such file"):
            one.Metadata.read_from_file(tmp_path / "none")


# ----------------------------------------------------------------------------- through a server

BASE = "from kernels import get_kernel_dep\nbase = get_kernel_dep('org/base')\n"


@pytest.fixture
def world(served, tmp_path):  # noqa: F811
    inner = served.service.registry
    release(inner, "org/base", "1.0.0")
    code = BASE + "def answer():\n    return base.answer()\n"
    release(inner, "org/top", "1.0.0", needs=[("org/base", 1)], files={"__init__.py": code})
    release(inner, "org/top", "2.0.0", variants=("torch-npu",))
    with override(hub_endpoint=served.endpoint, hub_cache=tmp_path / "our-cache"):
        yield inner


def test_it_loads_what_they_load(world):
    for one in (shim, theirs):
        kernel = one.get_kernel("org/top", version=1)
        assert kernel.answer() == "kernel-base 1.0.0"
        assert one.get_kernel("org/top", version=1) is kernel
        assert one.get_kernel("org/base", revision="v1").answer() == "kernel-base 1.0.0"
        path = one.install_kernel("org/top", version=1)
        assert (path.name, path.is_dir()) == ("torch-universal", True)
        infos = {k.repo_info.repo_id: k for k in one.get_loaded_kernels()}
        assert set(infos) == {"org/top", "org/base"}
        assert str(infos["org/top"].metadata.name) == "kernel-top"
        assert infos["org/top"].module is kernel
        assert infos["org/top"].repo_info.revision == world.commit("org/top", "v1")


def test_it_refuses_what_they_refuse(world):
    cases = [
        ({"repo_id": "org/top", "version": 2}, FileNotFoundError),  # no variant for this system
        ({"repo_id": "org/top", "version": 7}, ValueError),
        ({"repo_id": "org/top"}, ValueError),
        ({"repo_id": "org/top", "version": 1, "revision": "v1"}, ValueError),
        ({"repo_id": "evil/x", "version": 1}, ValueError),  # not trusted
        ({"repo_id": "org/top", "version": 1, "backend": "rocm"}, ValueError),
    ]
    for one in (shim, theirs):
        for arguments, kind in cases:
            with pytest.raises(kind):
                one.get_kernel(**arguments)


def test_has_kernel_and_variants(world):
    for one in (shim, theirs):
        assert one.has_kernel("org/top", version=1) is True
        assert one.has_kernel("org/top", version=2) is False
        with pytest.raises(ValueError):
            one.has_kernel("org/top", version=7)
        decisions = one.get_kernel_variants("org/top", version=2)
        assert [d.variant.variant_str for d in decisions] == ["torch-npu"]
        assert isinstance(decisions[0], one.VariantRejected)
        assert decisions[0].reason
        decisions = one.get_kernel_variants("org/top", revision="v1")
        assert [type(d).__name__ for d in decisions] == ["VariantAccepted"]


def test_versions_in_ranges(world):
    assert shim.get_kernel("org/top", version=">=1,<2").answer() == "kernel-base 1.0.0"
    with pytest.raises(TypeError):
        theirs.get_kernel("org/top", version=">=1,<2")


def test_trust_for_one_repository(world):
    release(world, "other/x", "1.0.0")
    for one in (shim, theirs):
        with pytest.raises(ValueError, match="trust"):
            one.get_kernel("other/x", version=1, trust_remote_code=["other/y"])
        kernel = one.get_kernel("other/x", version=1, trust_remote_code=["other/x"])
        assert kernel.answer() == "kernel-x 1.0.0"


def project_with_lock(tmp_path, endpoint):
    place = tmp_path / "project"
    place.mkdir()
    (place / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"org/top" = 1\n')
    write_lock(place, make_lock(HubRegistry(endpoint), read_dependencies(place)))
    return place


def test_load_kernel_as_it_is_documented(world, served, tmp_path):  # noqa: F811
    """`lockfile` may be left out: then the lock of the calling code counts."""
    place = project_with_lock(tmp_path, served.endpoint)
    (place / "app.py").write_text(
        "import kernelmill.compat.kernels as kernels\n"
        "def get(): return kernels.get_locked_kernel('org/top')\n"
        "def load(): return kernels.load_kernel('org/top')\n"
    )
    sys.path.insert(0, str(place))
    try:
        import app

        with pytest.raises(PackageError, match="not trusted"):
            app.load()
        assert app.get().answer() == "kernel-base 1.0.0"
        served.log.requests.clear()
        assert app.load().answer() == "kernel-base 1.0.0"
        assert not served.log.requests
    finally:
        sys.path.remove(str(place))
        sys.modules.pop("app", None)
    for name in ("kernels.lock", "kernelmill.lock"):
        assert shim.load_kernel("org/top", lockfile=place / name).answer() == "kernel-base 1.0.0"
    for name in ("load_kernel", "get_locked_kernel"):
        with pytest.raises(TypeError, match="lockfile"):
            getattr(theirs, name)("org/top")  # what 0.17.2 does
    with pytest.raises(ValueError, match=r"Could not find a `kernels.lock` file"):
        theirs.load_kernel("org/top", lockfile=None)


def test_what_was_fetched_online_works_offline(world):
    """Theirs resolves the version first, so `refs/v1` is never cached."""
    shim.get_kernel("org/top", version=1)
    with override(hub_offline=True):
        assert shim.get_kernel("org/top", version=1).answer() == "kernel-base 1.0.0"
        assert shim.install_kernel("org/top", version=1).is_dir()
        assert shim.has_kernel("org/top", version=1)
        assert shim.get_kernel_variants("org/top", version=1)
    assert shim.install_kernel("org/top", version=1, local_files_only=True).is_dir()


# ----------------------------------------------------------------------------- without `kernels`

ABSENT = """
    import sys
    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "kernels" and not shim_may():
                raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
    def shim_may():
        return False
    # The wheel is hidden: the path finder skips its directory.
    from importlib.machinery import PathFinder
    real = PathFinder.find_spec
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] == "kernels" else real(name, path, target)
    PathFinder.find_spec = staticmethod(find_spec)
    import importlib.util
    assert importlib.util.find_spec("kernels") is None
"""


def run_without_kernels(text):
    code = textwrap.dedent(ABSENT).replace("{{", "{").replace("}}", "}") + textwrap.dedent(text)
    made = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_kernels_import_kernels_without_that_package(tmp_path):
    base = variant_files("kernel-base", "1.0.0")
    code = (
        "import kernels\nfrom kernels import get_kernel_dep, Mode\n"
        "from kernels.layer import kernelize\nfrom kernels.layer.mode import Mode as M\n"
        "base = get_kernel_dep('org/base')\nassert M is Mode\n"
        "def answer():\n    import kernels.deps\n    return base.answer(), kernels.__version__\n"
    )
    top = variant_files("kernel-top", "1.0.0", needs=[("org/base", 1)], files={"__init__.py": code})
    for name, files in (("base", base), ("top", top)):
        for path, body in files.items():
            place = tmp_path / name / "build" / "torch-universal" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(body)
    printed = run_without_kernels(f"""
        from kernelmill import hub
        from kernelmill.config import override
        with override(local_kernels={f"org/base={tmp_path / 'base'}"!r}):
            kernel = hub.get_local_kernel({str(tmp_path / "top")!r})
        print(kernel.answer())
        # Nobody but kernels finds it, as long as none has imported it.
        print(importlib.util.find_spec("kernels.nothing") is None)
        print("kernels" in sys.modules)
    """)
    assert printed.splitlines() == ["('kernel-base 1.0.0', '0.17.2')", "True", "True"]


def test_others_do_not_find_it(tmp_path):
    files = variant_files("kernel-base", "1.0.0")
    place = tmp_path / "build" / "torch-universal"
    place.mkdir(parents=True)
    for path, body in files.items():
        (place / path).write_bytes(body)
    printed = run_without_kernels(f"""
        from kernelmill import hub
        hub.get_local_kernel({str(tmp_path)!r})
        print(importlib.util.find_spec("kernels"))
        try:
            import kernels
        except ModuleNotFoundError as error:
            print(error)
    """)
    assert printed.splitlines() == ["None", "No module named 'kernels'"]


def test_a_dependency_is_given_only_while_a_kernel_is_imported():
    for one in (shim, theirs):
        with pytest.raises(RuntimeError):
            one.get_kernel_dep("org/x")


def test_errors_are_ours_too():
    with pytest.raises(KernelmillError):
        shim.get_kernel("not a name", version=1)


def test_the_shim_needs_no_torch_to_be_imported():
    code = "import sys, kernelmill.compat.kernels; print('torch' in sys.modules, 'kernels' in sys.modules)"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["False", "False"]
    assert Path(shim.__file__).name == "kernels.py"
