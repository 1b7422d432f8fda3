"""Settings: parsing, error texts, overrides, and that nothing else reads the environment."""

import ast
import contextlib
import dataclasses
import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill import config
from kernelmill.config import (
    Config,
    UnknownVariable,
    child_environment,
    get_config,
    knobs,
    override,
    unknown_variables,
)
from kernelmill.errors import ConfigError

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kernelmill"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Start each test from an environment without settings; put the current ones back after it."""
    before = config._current
    for variable in [*(knob.variable for knob in knobs()), "XDG_CACHE_HOME"]:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    config._current = None
    yield monkeypatch
    config._current = before


def test_defaults():
    assert get_config() == Config(
        cache_dir=Path("/home/someone/.cache/kernelmill"),
        cache_size=4 * 1024**3,
        cxx=None,
        cxx_timeout=120.0,
        march="native",
        num_threads=None,
        native=True,
        device="auto",
        color=True,
        log_level="warning",
    )


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("KERNELMILL_CACHE_DIR", "/var/cache/km", "cache_dir", Path("/var/cache/km")),
        ("KERNELMILL_CACHE_DIR", "/a/../b/", "cache_dir", Path("/b")),
        ("KERNELMILL_CACHE_DIR", "~/km", "cache_dir", Path("/home/someone/km")),
        ("KERNELMILL_CACHE_SIZE", "0", "cache_size", 0),
        ("KERNELMILL_CACHE_SIZE", "123", "cache_size", 123),
        ("KERNELMILL_CACHE_SIZE", "512M", "cache_size", 512 * 1024**2),
        ("KERNELMILL_CACHE_SIZE", "4G", "cache_size", 4 * 1024**3),
        ("KERNELMILL_CACHE_SIZE", " 1.5 GiB ", "cache_size", 3 * 1024**3 // 2),
        ("KERNELMILL_CACHE_SIZE", "2tb", "cache_size", 2 * 1024**4),
        ("KERNELMILL_CACHE_SIZE", "7k", "cache_size", 7168),
        ("KERNELMILL_CXX", "clang++-14", "cxx", "clang++-14"),
        ("KERNELMILL_CXX", "/opt/my compilers/g++", "cxx", "/opt/my compilers/g++"),
        ("KERNELMILL_CXX_TIMEOUT", "0.5", "cxx_timeout", 0.5),
        ("KERNELMILL_MARCH", "x86-64-v3", "march", "x86-64-v3"),
        ("KERNELMILL_MARCH", "armv8.2-a+fp16", "march", "armv8.2-a+fp16"),
        ("KERNELMILL_NUM_THREADS", "3", "num_threads", 3),
        ("KERNELMILL_NATIVE", "0", "native", False),
        ("KERNELMILL_NATIVE", "Off", "native", False),
        ("KERNELMILL_NATIVE", "yes", "native", True),
        ("KERNELMILL_DEVICE", "cuda:12", "device", "cuda:12"),
        ("NO_COLOR", "0", "color", False),
        ("KERNELMILL_LOG", "DEBUG", "log_level", "debug"),
    ],
)
def test_a_variable_sets_its_field_and_no_other(environment, variable, text, name, value):
    default = get_config()
    environment.setenv(variable, text)
    assert get_config() is default, "the environment is read once"
    assert config.reload() == dataclasses.replace(default, **{name: value})
    assert get_config() == dataclasses.replace(default, **{name: value})


@pytest.mark.parametrize("knob", knobs(), ids=lambda knob: knob.variable)
def test_an_empty_variable_counts_as_unset(environment, knob):
    default = get_config()
    environment.setenv(knob.variable, "")
    assert config.reload() == default


UNUSABLE = {
    "KERNELMILL_CACHE_SIZE": ["4X", "-1", "G", "1e9", "4 G 2", "٣"],
    "KERNELMILL_CXX": ["g++\n-O3", "  "],
    "KERNELMILL_CXX_TIMEOUT": ["0", "-3", "nan", "inf", "soon", "86401"],
    "KERNELMILL_MARCH": ["-O3", "native -O0", "a=b", " "],
    "KERNELMILL_NUM_THREADS": ["0", "-1", "4097", "two", "1.0", "1_0"],
    "KERNELMILL_NATIVE": ["2", "maybe"],
    "KERNELMILL_DEVICE": ["gpu", "cuda:", "cuda:-1", "CPU", "cpu:0"],
    "KERNELMILL_LOG": ["loud", "10"],
}


@pytest.mark.parametrize(
    ("variable", "text"), [(name, text) for name, texts in UNUSABLE.items() for text in texts]
)
def test_an_unusable_value_is_an_error_that_says_what_is_accepted(environment, variable, text):
    knob = next(knob for knob in knobs() if knob.variable == variable)
    environment.setenv(variable, text)
    with pytest.raises(ConfigError) as caught:
        get_config()
    assert str(caught.value) == (
        f"{variable}={text!r} cannot be used; accepted: {knob.accepts}\n\n"
        f"hint: unset {variable} for the default ({knob.default})"
    )


def test_the_exact_text_of_one_error(environment):
    environment.setenv("KERNELMILL_CACHE_SIZE", "lots")
    with pytest.raises(ConfigError) as caught:
        get_config()
    assert str(caught.value) == (
        "KERNELMILL_CACHE_SIZE='lots' cannot be used; accepted: a number of bytes, or one with "
        "K, M, G or T (powers of 1024), such as 512M\n\n"
        "hint: unset KERNELMILL_CACHE_SIZE for the default (4G)"
    )


def test_a_failed_reload_keeps_the_settings(environment):
    before = get_config()
    environment.setenv("KERNELMILL_LOG", "loud")
    with pytest.raises(ConfigError):
        config.reload()
    assert get_config() is before


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))))
def test_any_text_is_parsed_or_refused(text):
    for knob in knobs():
        try:
            value = knob.parse(text)
        except ValueError:
            with pytest.raises(ConfigError) as caught:
                override(**{knob.name: text}).__enter__()
            assert caught.value.message.startswith(f"{knob.variable}={text!r} cannot be used")
        else:
            with override(**{knob.name: text}) as changed:
                assert getattr(changed, knob.name) == value


@given(st.integers(0, 2**50), st.sampled_from("kmgtKMGT"), st.sampled_from(["", "b", "B", "iB"]))
def test_sizes_are_exact(number, unit, suffix):
    scale = 1024 ** ("kmgt".index(unit.lower()) + 1)
    assert config._parse_size(f"{number}{unit}{suffix}") == number * scale
    assert config._parse_size(str(number)) == number


def test_the_default_cache_directory_follows_xdg(environment):
    environment.setenv("XDG_CACHE_HOME", "/xdg")
    assert config.reload().cache_dir == Path("/xdg/kernelmill")
    environment.setenv("XDG_CACHE_HOME", "relative/ignored")
    assert config.reload().cache_dir == Path("/home/someone/.cache/kernelmill")


def test_without_a_home_the_cache_is_in_the_temporary_directory(environment):
    environment.setattr(os.path, "expanduser", lambda path: path)  # neither HOME nor passwd entry
    environment.setenv("TMPDIR", "/scratch")
    assert config.reload().cache_dir == Path(f"/scratch/kernelmill-{os.getuid()}")
    environment.delenv("TMPDIR")
    assert config.reload().cache_dir == Path(f"/tmp/kernelmill-{os.getuid()}")


def test_a_relative_directory_does_not_move_with_the_process(environment, tmp_path):
    environment.chdir(tmp_path)
    environment.setenv("KERNELMILL_CACHE_DIR", "here")
    first = config.reload().cache_dir
    environment.chdir("/")
    assert first == get_config().cache_dir == tmp_path / "here"


def test_threads_default_to_the_affinity_mask(environment):
    assert get_config().threads() == len(os.sched_getaffinity(0))
    environment.setattr(os, "sched_getaffinity", lambda _: {3, 5, 8})
    assert get_config().threads() == 3
    with override(num_threads=7) as changed:
        assert changed.threads() == 7


def test_override_nests_and_restores_after_an_error():
    before = get_config()
    with override(num_threads=2), override(cache_size="1M", cxx_timeout=3) as inner:
        assert get_config() is inner
        assert (inner.num_threads, inner.cache_size, inner.cxx_timeout) == (2, 1 << 20, 3.0)
    assert get_config() is before
    with contextlib.suppress(KeyError), override(native=False):
        assert not get_config().native
        raise KeyError
    assert get_config() is before
    with override(num_threads=2), override(num_threads=None) as none:
        assert none.num_threads is None


def test_override_refuses_unknown_fields_and_wrong_types():
    with pytest.raises(ConfigError) as caught, override(cachedir="/x"):
        pass
    assert str(caught.value) == (
        "there is no setting 'cachedir'; settings: cache_dir, cache_size, cxx, cxx_timeout, march, "
        "num_threads, native, device, hub_cache, hub_config, hub_endpoint, hub_offline, "
        "local_kernels, disable_kernel_mapping, color, log_level"
    )
    with pytest.raises(ConfigError) as caught, override(cache_size=1.5):
        pass
    assert str(caught.value) == "setting cache_size=1.5 is of type float; expected: int"
    with pytest.raises(ConfigError, match="NUM_THREADS='none' cannot be used"):
        override(num_threads="none").__enter__()


def test_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        get_config().march = "x86-64"
    assert hash(get_config()) == hash(dataclasses.replace(get_config()))


def test_unknown_variables_are_listed_with_the_nearest_name(environment):
    for name in [name for name in os.environ if name.startswith("KERNELMILL_")]:
        environment.delenv(name)
    assert unknown_variables() == ()
    environment.setenv("KERNELMILL_CACHEDIR", "/x")
    environment.setenv("KERNELMILL_THREADS", "1")
    environment.setenv("KERNELMILL_LOG", "debug")
    assert unknown_variables() == (
        UnknownVariable("KERNELMILL_CACHEDIR", "KERNELMILL_CACHE_DIR"),
        UnknownVariable("KERNELMILL_THREADS", "KERNELMILL_NUM_THREADS"),
    )


def test_child_environment_is_a_copy(environment):
    environment.setenv("KERNELMILL_LOG", "debug")
    child = child_environment(LC_ALL="C")
    assert child["LC_ALL"] == "C"
    assert child["KERNELMILL_LOG"] == "debug"
    child["KERNELMILL_LOG"] = "error"
    assert os.environ["KERNELMILL_LOG"] == "debug"


def test_importing_reads_no_setting_and_warns_of_nothing():
    code = "import kernelmill.config as c; assert c._current is None"
    environ = {**os.environ, "KERNELMILL_LOG": "loud", "KERNELMILL_NO_SUCH": "1"}
    environ["PYTHONPATH"] = str(SOURCE.parent)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environ, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_reference_page_is_the_table():
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    rows = [
        f"| `{k.variable}` | `{k.name}` | {k.accepts} | {k.default} | {k.doc} |" for k in knobs()
    ]
    assert [line for line in page.splitlines() if line.startswith("| `")] == rows


def test_each_knob_is_declared_once():
    assert [knob.name for knob in knobs()] == [f.name for f in dataclasses.fields(Config)]
    assert len({knob.variable for knob in knobs()}) == len(knobs())


def environment_reads(source: str) -> list[int]:
    """Return the lines that name `os.environ`, `os.environb`, `os.getenv` or `os.putenv`."""
    names = {"environ", "environb", "getenv", "putenv"}
    return sorted(
        node.lineno
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Attribute) and node.attr in names)
        or (isinstance(node, ast.alias) and node.name in names)
    )


def test_no_other_module_reads_the_environment():
    assert environment_reads("import os\nos.environ['X']\nfrom os import getenv") == [2, 3]
    readers = {
        f"{path.relative_to(SOURCE)}:{line}"
        for path in SOURCE.rglob("*.py")
        for line in environment_reads(path.read_text())
        if path.name != "config.py"
    }
    assert readers == set()


def test_the_examples_run():
    assert doctest.testmod(config).failed == 0
    page = ROOT / "docs" / "reference" / "configuration.md"
    assert doctest.testfile(str(page), module_relative=False).failed == 0
