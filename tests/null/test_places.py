"""Which NVRTC of several is taken: the driver decides, then the place, then the bindings' version.

The directories here are made up and hold empty files; nothing of them is loaded.
"""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace

import pytest

from kernelmill.toolchain import nvidia, places
from kernelmill.toolchain.places import Place, Wanted, header_places, in_order, library_places

# What wheels of each version put below `nvidia/`.
WHEELS = {
    12: {
        "nvrtc": "cuda_nvrtc/lib/libnvrtc.so.12",
        "nvJitLink": "nvjitlink/lib/libnvJitLink.so.12",
        "cudart": "cuda_runtime/include/cuda_runtime_api.h",
    },
    13: {
        "nvrtc": "cu13/lib/libnvrtc.so.13",
        "nvJitLink": "cu13/lib/libnvJitLink.so.13",
        "cudart": "cu13/include/cuda_runtime_api.h",
    },
    14: {"nvrtc": "cu14/lib/libnvrtc.so.14"},
}


def fill(site, *majors):
    """Let a directory of Python's path have the wheels of some versions; returns its name."""
    for major in majors:
        for file in WHEELS[major].values():
            path = site / "nvidia" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    site.mkdir(exist_ok=True)
    return str(site)


def toolkit(root, major, below="lib64"):
    """Make an installed toolkit, with the names that such a directory has."""
    directory = root / below
    directory.mkdir(parents=True)
    for name in (f"so.{major}", "so", f"so.{major}.0.88"):
        (directory / f"libnvrtc.{name}").touch()
    (directory / f"libnvrtc-builtins.so.{major}.0").touch()
    return str(root)


def first(path, environment=None, **wanted):
    """Return where NVRTC is taken from: its major version, and the directory's name or how."""
    found = in_order(library_places("nvrtc", path, environment or {}), Wanted(**wanted))[0]
    return found.major, found.path, found.found_via


# ----------------------------------------------------------------------------- what decides


@pytest.mark.parametrize("turned", [False, True])
def test_the_bindings_decide_between_wheels_whatever_the_order(tmp_path, turned):
    own, system = fill(tmp_path / "own", 12), fill(tmp_path / "system", 13)
    path = [system, own] if turned else [own, system]
    for driver in (None, 13, 14):
        assert first(path, driver=driver, bindings=12)[0] == 12
        assert first(path, driver=driver, bindings=13)[0] == 13


def test_the_driver_takes_nothing_newer_than_itself(tmp_path):
    """Neither for its place nor for its version, where there is another."""
    own = fill(tmp_path / "own", 13, 14)
    root = toolkit(tmp_path / "cuda", 12)
    environment = {"CUDA_PATH": root}
    assert first([own], environment, driver=14, bindings=14)[0] == 14
    assert first([own], environment, driver=13, bindings=14)[0] == 13
    assert first([own], environment, driver=12, bindings=13) == (
        12,
        f"{root}/lib64/libnvrtc.so.12",
        "CUDA_PATH",
    )


def test_where_all_is_too_new_the_own_wheel_compiles_at_least(tmp_path):
    own = fill(tmp_path / "own", 13)
    found = library_places("nvrtc", [own], {})
    ranked = in_order((p for p in found if p.major == 13), Wanted(driver=12, bindings=13))
    assert ranked[0].found_via == "site-packages"


def test_wheels_come_before_what_the_system_has(tmp_path):
    own = fill(tmp_path / "own", 13)
    environment = {
        "CONDA_PREFIX": toolkit(tmp_path / "conda", 12, "lib"),
        "CUDA_HOME": toolkit(tmp_path / "cuda", 12),
    }
    assert first([own], environment, driver=13, bindings=12)[2] == "site-packages"
    assert first([], environment, driver=13, bindings=12)[2] == "conda"
    del environment["CONDA_PREFIX"]
    assert first([], environment, driver=13, bindings=12)[2] == "CUDA_PATH"
    assert first([], {}, driver=13, bindings=12) == (12, "libnvrtc.so.12", "system-search")
    assert first([], {}, driver=None, bindings=None) == (13, "libnvrtc.so.13", "system-search")


def test_the_first_directory_on_the_path_counts(tmp_path):
    """It is where the package itself is imported from, also where it is no site-packages."""
    sites = [fill(tmp_path / name, 13) for name in ("one", "two", "three")]
    for path in itertools.permutations(sites):
        assert first(path, driver=13, bindings=13)[1] == f"{path[0]}/nvidia/cu13/lib/libnvrtc.so.13"
    assert first(["", *sites], driver=13, bindings=13)[1].startswith(sites[0])


def test_every_name_is_listed_once_and_no_other_file(tmp_path):
    own = fill(tmp_path / "own", 12, 13)
    root = toolkit(tmp_path / "cuda", 13)
    found = library_places("nvrtc", [own, own], {"CUDA_PATH": root, "CUDA_HOME": "/nowhere"})
    assert [(p.major, p.found_via) for p in found] == [
        (13, "site-packages"),
        (12, "site-packages"),
        (13, "CUDA_PATH"),
        (13, "system-search"),
        (12, "system-search"),
    ]


def test_a_toolkit_for_another_machine_layout(tmp_path):
    import platform

    root = toolkit(tmp_path / "cuda", 13, f"targets/{platform.machine()}-linux/lib")
    assert first([], {"CUDA_PATH": root})[2] == "CUDA_PATH"


def test_headers_of_both_versions(tmp_path):
    own = fill(tmp_path / "own", 12, 13)
    found = header_places("cudart", "cuda_runtime_api.h", [own])
    assert [(p.major, p.path.removeprefix(f"{own}/nvidia/")) for p in found] == [
        (13, "cu13/include"),
        (12, "cuda_runtime/include"),
    ]
    assert header_places("cudart", "none.h", [own]) == []


# ----------------------------------------------------------------------------- the driver


class Library:
    def __init__(self, number, status=0):
        self.number, self.status = number, status

    def cuDriverGetVersion(self, pointer):
        pointer._obj.value = self.number
        return self.status


def test_the_version_of_the_driver():
    assert places.driver_version(lambda name: Library(12080)) == (12, 8)
    assert places.driver_version(lambda name: Library(13000)) == (13, 0)
    assert places.driver_version(lambda name: Library(0)) is None
    assert places.driver_version(lambda name: Library(13000, status=3)) is None

    def absent(name):
        raise OSError(f"{name}: cannot open")

    assert places.driver_version(absent) is None


# ----------------------------------------------------------------------------- loading


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with wheels of both versions; says what is loaded, and may refuse some files."""
    own = fill(tmp_path / "own", 12, 13)
    builtins = tmp_path / "own/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.9"
    builtins.touch()
    state = SimpleNamespace(loaded=[], refused=(), driver=(13, 0), bindings=12, already=None)

    def load(path, mode=0):
        if path.endswith(state.refused):
            raise OSError(f"{path}: invalid ELF header")
        state.loaded.append(path.removeprefix(f"{own}/nvidia/"))

    def found(name):
        last = [p for p in state.loaded if "builtins" not in p and name in p][-1:]
        path = f"{own}/nvidia/{last[0]}" if last else f"/usr/lib/lib{name}.so.{state.already}"
        return SimpleNamespace(abs_path=path, found_via="was-already-loaded-from-elsewhere")

    monkeypatch.setattr(nvidia, "ctypes", SimpleNamespace(CDLL=load))
    monkeypatch.setattr(nvidia, "library_places", lambda name: library_places(name, [own], {}))
    monkeypatch.setattr(nvidia, "driver_version", lambda: state.driver)
    monkeypatch.setattr(nvidia, "bindings_major", lambda: state.bindings)
    monkeypatch.setattr(nvidia, "is_loaded", lambda name: state.already)
    real = nvidia.importlib.import_module
    pathfinder = SimpleNamespace(load_nvidia_dynamic_lib=found, DynamicLibNotFoundError=KeyError)
    monkeypatch.setattr(
        nvidia,
        "importlib",
        SimpleNamespace(
            import_module=lambda name: pathfinder if name == "cuda.pathfinder" else real(name)
        ),
    )
    nvidia.load_library.cache_clear()
    yield state
    nvidia.load_library.cache_clear()


def test_the_choice_is_loaded_before_the_bindings_look_for_it(machine):
    library = nvidia.load_library("nvrtc")
    assert machine.loaded == [
        "cuda_nvrtc/lib/libnvrtc-builtins.so.12.9",
        "cuda_nvrtc/lib/libnvrtc.so.12",
    ]
    assert library.path.endswith("cuda_nvrtc/lib/libnvrtc.so.12")
    assert library.found_via == "site-packages"
    assert [name for name, *_ in library.stamps] == ["libnvrtc.so.12", "libnvrtc-builtins.so.12.9"]


def test_the_linker_is_of_the_version_of_the_compiler(machine):
    machine.bindings = 13
    assert nvidia.choices("nvJitLink")[0].major == 13
    machine.driver = (12, 8)
    assert nvidia.choices("nvrtc")[0].major == 12
    assert nvidia.choices("nvJitLink")[0].major == 12
    machine.already = 13  # torch, say, has brought NVRTC with it
    assert nvidia.choices("nvJitLink")[0].major == 13


def test_what_cannot_be_loaded_is_passed_over(machine):
    machine.refused = ("libnvrtc.so.12",)
    library = nvidia.load_library("nvrtc")
    assert machine.loaded[-1] == "cu13/lib/libnvrtc.so.13"
    assert library.found_via == "site-packages"


def test_what_the_process_has_already_is_taken_and_said(machine):
    machine.already = 13
    library = nvidia.load_library("nvrtc")
    assert machine.loaded == []
    assert (library.path, library.found_via) == (
        "/usr/lib/libnvrtc.so.13",
        "was-already-loaded-from-elsewhere",
    )


def test_a_library_that_nobody_loaded_is_not_loaded():
    assert places.is_loaded("there-is-none") is None
    ctypes.CDLL("libm.so.6")
    assert Place("x", 13, places.WHEEL) == Place("x", 13, "site-packages")
