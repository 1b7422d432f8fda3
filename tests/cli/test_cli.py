"""The command line: exit status, stdout and stderr of each verb, and the reference page."""

import ast
import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelmill import cli, cli_build, cli_parts, config, doctor
from kernelmill.cache import Bundle, Image, default_cache, digest
from kernelmill.errors import CacheWarning, CompileError, OperatorError, SourceSpan

PAGE = Path(__file__).parents[2] / "docs/reference/command-line.md"
VERBS = (
    "kernelmill",
    "kernelmill doctor",
    "kernelmill cache",
    "kernelmill cache info",
    "kernelmill cache clear",
    "kernelmill demo",
    "kernelmill run",
    "kernelmill tune",
    "kernelmill new",
    "kernelmill migrate",
    "kernelmill clean",
    "kernelmill build",
    "kernelmill dev",
    "kernelmill shell",
    "kernelmill wheel",
    "kernelmill check",
    "kernelmill test",
    "kernelmill bench",
    "kernelmill generate",
    "kernelmill generate cmake",
    "kernelmill serve",
    "kernelmill push",
    "kernelmill download",
    "kernelmill sync",
    "kernelmill versions",
    "kernelmill lock",
    "kernelmill why",
    "kernelmill verify",
    "kernelmill info",
    "kernelmill trust",
    "kernelmill key",
)


def invoke(*arguments, **options):
    options.setdefault("terminal_width", 80)
    return CliRunner().invoke(cli.main, list(arguments), prog_name="kernelmill", **options)


@pytest.fixture
def root(tmp_path):
    with config.override(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


def raising(error):
    def fail(**_):
        raise error

    return fail


# ----------------------------------------------------------------------------- door


def test_version_is_that_of_the_distribution():
    result = invoke("--version")
    assert (result.exit_code, result.stdout, result.stderr) == (
        0,
        f"kernelmill {version('kernelmill')}\n",
        "",
    )


def test_python_dash_m_is_the_same_program():
    command = [sys.executable, "-m", "kernelmill", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    assert (result.stdout, result.stderr) == (f"kernelmill {version('kernelmill')}\n", "")


def test_the_installed_command_leads_here():
    (script,) = entry_points(group="console_scripts", name="kernelmill")
    assert script.load() is cli.main


@pytest.mark.parametrize("verb", [(), ("cache",)])
def test_a_group_alone_prints_its_help(verb):
    alone, asked = invoke(*verb), invoke(*verb, "--help")
    assert (alone.exit_code, alone.stdout, alone.stderr) == (0, asked.stdout, "")


@pytest.mark.parametrize("module", [cli, cli_parts, cli_build])
def test_only_quick_modules_are_imported_before_a_verb_runs(module):
    tree = ast.parse(Path(module.__file__).read_text())
    found = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name)
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    ours = {name for name in found if name.startswith("kernelmill")}
    quick = {"kernelmill", "kernelmill.cli_parts", "kernelmill.config", "kernelmill.errors"}
    assert ours <= quick
    others = {name.partition(".")[0] for name in found - ours}
    assert others - sys.stdlib_module_names == {"click"}


def test_help_needs_no_settings(monkeypatch):
    monkeypatch.setattr(cli_parts, "get_config", lambda: pytest.fail("settings were read"))
    for verb in VERBS:
        assert invoke(*verb.split()[1:], "--help").exit_code == 0


# ----------------------------------------------------------------------------- reference page


@pytest.mark.parametrize("verb", VERBS)
def test_the_page_shows_the_help_of(verb):
    shown = re.findall(r"```console\n\$ (.*?) --help\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [name for name, _ in shown] == list(VERBS)
    assert dict(shown)[verb] == invoke(*verb.split()[1:], "--help").stdout


def test_the_page_lists_every_verb():
    def walk(command, name):
        yield name
        for child, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{name} {child}")

    assert set(walk(cli.main, "kernelmill")) == set(VERBS)


# ----------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "message", "help_of"),
    [
        (["bogus"], "no such command 'bogus'", "kernelmill"),
        (["doctor", "--bogus"], "no such option '--bogus'", "kernelmill doctor"),
        (
            ["demo", "--picture", "/nowhere.png"],
            "invalid value for '--picture': File '/nowhere.png' does not exist",
            "kernelmill demo",
        ),
        (
            ["cache", "clear", "now"],
            "got unexpected extra argument (now)",
            "kernelmill cache clear",
        ),
    ],
)
def test_a_wrong_call_is_the_users_error(arguments, message, help_of):
    result = invoke(*arguments)
    # click 8.1 writes an option's name after a colon
    said = result.stderr.replace("option: --bogus", "option '--bogus'")
    assert said == f"error: {message}\n\nhint: see `{help_of} --help`\n"
    assert (result.exit_code, result.stdout) == (1, "")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            CompileError("c++ failed", hint="try clang++", log="line 1\nline 2"),
            "error: c++ failed\n\nhint: try clang++\n\nline 1\nline 2\n",
        ),
        (
            OperatorError("no lists here", span=SourceSpan("f.py", 3, 4, 6, "    []\n"), hint="x"),
            'error: no lists here\n  File "f.py", line 3\n        []\n        ^^\n\nhint: x\n',
        ),
        (CompileError("no hint"), "error: no hint\n"),
    ],
)
def test_an_error_of_ours_is_printed_without_a_traceback(monkeypatch, root, error, text):
    monkeypatch.setattr(doctor, "examine", raising(error))
    result = invoke("doctor")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", text)


def test_debug_adds_the_traceback(monkeypatch, root):
    monkeypatch.setattr(doctor, "examine", raising(CompileError("c++ failed")))
    with config.override(log_level="debug"):
        result = invoke("doctor")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: c++ failed\nTraceback (most recent call last):\n")
    assert "in fail" in result.stderr


def test_what_nobody_foresaw_is_status_2(monkeypatch, root):
    monkeypatch.setattr(doctor, "examine", raising(ZeroDivisionError("division by zero")))
    result = invoke("doctor")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: unexpected ZeroDivisionError: division by zero\n\n"
        "hint: this is a fault of kernelmill; KERNELMILL_LOG=debug shows where it happened\n"
    )


def test_what_the_system_refuses_is_status_1(monkeypatch, root):
    monkeypatch.setattr(doctor, "examine", raising(OSError(28, "No space left on device", "/x")))
    result = invoke("doctor")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: no space left on device (/x)\n"


def test_an_interrupt_is_said_in_one_line(monkeypatch, root):
    monkeypatch.setattr(doctor, "examine", raising(KeyboardInterrupt()))
    result = invoke("doctor")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.strip() == "error: interrupted"


def test_a_setting_that_cannot_be_used(monkeypatch):
    monkeypatch.setenv("KERNELMILL_NUM_THREADS", "many")
    monkeypatch.setattr(cli_parts, "get_config", config.reload)
    result = invoke("cache", "info")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: KERNELMILL_NUM_THREADS='many' cannot be used; ")
    assert "Traceback" not in result.stderr


def test_warnings_of_the_cache_go_to_stderr(monkeypatch, root):
    import warnings

    def warn_and_fail(**_):
        warnings.warn("kept elsewhere", CacheWarning, stacklevel=1)
        raise CompileError("c++ failed")

    monkeypatch.setattr(doctor, "examine", warn_and_fail)
    result = invoke("doctor")
    assert result.stderr == "warning: kept elsewhere\nerror: c++ failed\n"


# ----------------------------------------------------------------------------- colour


@pytest.mark.parametrize(("color", "bold"), [(True, True), (False, False)])
def test_no_color_is_respected_where_colour_is_possible(root, color, bold):
    with config.override(color=color):
        result = invoke("doctor", color=True)
    assert ("\x1b[1m" in result.stdout) is bold


def test_no_colour_in_a_pipe(root):
    assert "\x1b" not in invoke("doctor").stdout


# ----------------------------------------------------------------------------- cache


def put(name: bytes):
    bundle = Bundle(images=(Image("cpu", "so", name),), source="text")
    default_cache().get_or_build(digest(source=name.decode()), lambda _: bundle)


def test_info_of_a_cache_that_is_not_there(root):
    result = invoke("cache", "info")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"directory   {root}\nkernels     0, 0 B of at most 4 GiB\n"
    assert not root.exists()


def test_info_counts_kernels_and_the_folders_beside_them(root):
    put(b"one")
    put(b"two")
    (root / "toolchain").mkdir(mode=0o700)
    (root / "toolchain" / "memo.json").write_bytes(b"x" * 1536)
    found = json.loads(invoke("cache", "info", "--json").stdout)
    assert found["cache"]["entries"] == 2
    assert found["cache"]["root"] == str(root)
    assert found["cache"]["bytes"] == default_cache().info().bytes > 0
    assert found["folders"] == [
        {
            "path": str(root / "toolchain"),
            "holds": "what is known of compilers",
            "files": 1,
            "bytes": 1536,
            "kept": "",
        }
    ]
    lines = invoke("cache", "info").stdout.splitlines()
    assert lines[1].startswith("kernels     2, ")
    assert re.fullmatch(r"last used   \d{4}-\d\d-\d\d \d\d:\d\d UTC", lines[2])
    assert lines[3] == "toolchain/  what is known of compilers: 1 files, 1.5 KiB"


def test_info_says_why_a_directory_is_not_used(root):
    root.mkdir(mode=0o777)
    root.chmod(0o777)
    lines = invoke("cache", "info").stdout.splitlines()
    assert lines[1] == (
        f"problem     {root} can be written to by other users (mode 0777); "
        "each process keeps its own kernels until it ends"
    )


def test_clear_removes_kernels_and_folders_and_nothing_else(root):
    put(b"one")
    for name in ("toolchain", "zig"):
        (root / name / "deep").mkdir(mode=0o700, parents=True)
        (root / name).chmod(0o700)
        (root / name / "deep" / "file").write_bytes(b"12345")
    (root / "mine.txt").write_text("a file of the user")
    size = default_cache().info().bytes
    result = invoke("cache", "clear")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"removed 1 kernels, {cli_parts.size_text(size)}\n"
        "removed toolchain/: 1 files, 5 B\n"
        "removed zig/: 1 files, 5 B\n"
    )
    assert default_cache().info().entries == 0
    assert not (root / "toolchain").exists()
    assert not (root / "zig").exists()
    assert (root / "mine.txt").read_text() == "a file of the user"


def test_clear_leaves_a_folder_that_kernelmill_cannot_have_made(root):
    root.mkdir(mode=0o700)
    (root / "zig").mkdir()
    (root / "zig").chmod(0o755)
    (root / "zig" / "build.zig").write_text("a project of the user")
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "file").write_text("x")
    (root / "toolchain").symlink_to(elsewhere)
    result = invoke("cache", "clear")
    assert result.exit_code == 0
    assert result.stderr == "".join(
        f"warning: {root / name} was kept: it is not a directory of this user alone\n"
        for name in ("toolchain", "zig")
    )
    assert (root / "zig" / "build.zig").exists()
    assert (elsewhere / "file").exists()


def test_clear_of_a_directory_that_is_not_trusted(root):
    root.mkdir()
    root.chmod(0o777)
    (root / "zig").mkdir(mode=0o700)
    result = invoke("cache", "clear")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"error: the cache in {root} was not cleared: {root} can be written to by other users "
        "(mode 0777)\n\n"
        "hint: set KERNELMILL_CACHE_DIR to a directory of yours that only you can write to\n"
    )
    assert (root / "zig").exists()


# ----------------------------------------------------------------------------- printing


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (4 << 30, "4 GiB"), (3 << 40, "3 TiB")],
)
def test_sizes(size, text):
    assert cli_parts.size_text(size) == text


def test_a_table_is_as_wide_as_its_cells():
    rows = [("a", "1"), ("bbb", "22")]
    assert list(cli_parts.table_lines(rows, head=("name", "n"), numbers_from=1)) == [
        "name   n",
        "a      1",
        "bbb   22",
    ]


def test_a_real_process_keeps_data_and_talk_apart(tmp_path):
    environment = {**os.environ, "KERNELMILL_CACHE_DIR": str(tmp_path / "c"), "KERNELMILL_LGO": "1"}
    command = [sys.executable, "-m", "kernelmill", "doctor", "--json"]
    result = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=600, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    facts = json.loads(result.stdout)
    assert facts["unknown_variables"] == [
        {"variable": "KERNELMILL_LGO", "nearest": "KERNELMILL_LOG"}
    ]
    assert facts["cache"]["root"] == str(tmp_path / "c")
