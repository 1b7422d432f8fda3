"""The verbs of registries: what they print and change, and what they say when they cannot."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hub_clients import clean, forget_kernels, publish, served  # noqa: F401 - fixtures
from kernel_packages import write_project
from kernelmill import cli, hub
from kernelmill.config import get_config, override
from kernelmill.errors import TrustError
from kernelmill.package.policy import read_policy
from kernelmill.package.registry_files import FilesRegistry
from kernelmill.package.shelf import open_shelf

pytestmark = pytest.mark.filterwarnings("ignore:Use .content=:DeprecationWarning")


def invoke(*arguments):
    return CliRunner().invoke(cli.main, list(arguments), prog_name="kernelmill")


def ok(*arguments):
    done = invoke(*arguments)
    assert done.exit_code == 0, done.stderr
    return done


def test_push_then_download_verify_and_info(served, tmp_path, monkeypatch):  # noqa: F811
    root = write_project(tmp_path / "p", license="MIT")
    monkeypatch.chdir(root)
    (root / "build" / ".kernelmill" / "log").mkdir(parents=True)  # what a build keeps there
    plan = ok("push", "org/twice", "--dry-run")
    assert plan.stdout.startswith("org/twice: version 1.0.0 to the branch v1, which is made\n")
    done = ok("push", "org/twice")
    commit = done.stdout.split()[-1]
    assert done.stdout == f"org/twice 1.0.0: v1 is now at {commit}\n"
    again = json.loads(ok("push", "org/twice", "--json").stdout)
    assert (again["changes"], again["unchanged"], again["commit"]) == ([], 5, commit)
    place = ok("download", "org/twice", "--version", ">=1").stdout.strip()
    assert place.endswith(f"snapshots/{commit}/build/torch-universal")
    lines = ok("verify", "org/twice", "--version", "1").stdout.splitlines()
    assert lines[0] == "torch-universal  holds"
    assert [line.split()[:2] for line in lines[1:]] == [["commit", "yes"], ["digest", "yes"], ["policy", "yes"]]  # fmt: skip
    assert ok("verify", "org/twice").stdout.splitlines() == lines  # the newest
    assert ok("verify", str(root), "--all-variants").stdout.count("  holds\n") == 1
    facts = json.loads(ok("info", "org/twice", "--version", "1", "--json").stdout)
    assert (facts["version"], facts["license"], facts["commit"]) == ("1.0.0", "MIT", commit)
    assert "version    1.0.0 (v1)" in ok("info", str(root)).stdout
    served.log.requests.clear()
    assert ok("download", "org/twice", "--version", "1", "--offline").stdout.strip() == place
    assert not served.log.requests


def test_what_does_not_hold_is_status_1_and_can_be_repaired(served, tmp_path):  # noqa: F811
    publish(served, write_project(tmp_path / "p"))
    place = ok("download", "org/twice", "--version", "1").stdout.strip()
    Path(place, "data.bin").resolve().write_bytes(b"xyz")
    done = invoke("verify", "org/twice", "--version", "1")
    assert done.exit_code == 1
    assert "torch-universal  FAILS\n  commit      NO" in done.stdout
    assert " data.bin: expected " in done.stdout
    assert done.stderr.startswith("error: 1 of 1 variants fail: torch-universal")
    assert ok("verify", "org/twice", "--version", "1", "--repair").stdout.startswith("torch-universal  holds")  # fmt: skip
    assert hub.get_kernel("org/twice", version=1).twice(1) == 2


def test_the_command_that_a_refusal_prints_lifts_it(served, tmp_path):  # noqa: F811
    publish(served, write_project(tmp_path / "p"), "stranger/twice")
    with pytest.raises(TrustError) as caught:
        hub.get_kernel("stranger/twice", version=1)
    command = caught.value.hint.split("`")[1].split()
    assert command[0] == "kernelmill"
    done = ok(*command[1:])
    assert done.stdout == f"{get_config().hub_config} now has a rule for stranger: level 1\n"
    assert hub.get_kernel("stranger/twice", version=1).twice(1) == 2
    ok("trust", "stranger", "--registry", "hub", "--level", "2")
    assert [(r.publisher, r.level) for r in read_policy().rules] == [("stranger", 2)]


def test_keys_sign_and_rules_ask_for_them(served, tmp_path, monkeypatch):  # noqa: F811
    pytest.importorskip("cryptography")
    monkeypatch.chdir(write_project(tmp_path / "p"))
    key = ok("key", str(tmp_path / "key.pem")).stdout.strip()
    assert key == ok("key", str(tmp_path / "key.pem"), "--show").stdout.strip()
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600
    assert invoke("key", str(tmp_path / "key.pem")).exit_code == 1
    ok("push", "org/twice", "--key", str(tmp_path / "key.pem"))
    ok("trust", "org", "--level", "3", "--key", key)
    assert hub.get_kernel("org/twice", version=1).twice(1) == 2
    assert f"signature   yes  by {key}" in ok("verify", "org/twice", "--version", "1").stdout
    assert key in ok("info", "org/twice", "--version", "1").stdout


def test_rules_go_to_a_project_when_asked(tmp_path, clean):  # noqa: F811
    place = tmp_path / "pyproject.toml"
    place.write_text("# mine\n[project]\nname = 'x'\n")
    ok("trust", "acme/*", "--level", "2", "--project", str(tmp_path))
    assert place.read_text() == (
        "# mine\n[project]\nname = 'x'\n\n"
        '[[tool.kernelmill.trust]]\npublisher = "acme/*"\nlevel = 2\n'
    )
    assert read_policy(tmp_path).rules[0].publisher == "acme/*"
    assert read_policy().rules == ()
    bad = invoke("trust", "acme", "--level", "3")
    assert "names neither keys nor sigstore identities" in bad.stderr


def test_a_rule_takes_the_place_of_the_one_before(tmp_path, clean):  # noqa: F811
    place = get_config().hub_config
    place.write_text(
        '# mine\n[[trust]]  # first\npublisher = "acme"\nlevel = 3\nkeys = [\n'
        f'  "ed25519:{"A" * 43}=",\n]\n\n[[registry]]\nname = "x"\nurl = "y"\n\n'
        '[[trust]]\npublisher = "other"\n'
    )
    ok("trust", "acme", "--level", "2")
    assert place.read_text() == (
        '# mine\n[[registry]]\nname = "x"\nurl = "y"\n\n[[trust]]\npublisher = "other"\n\n'
        '[[trust]]\npublisher = "acme"\nlevel = 2\n'
    )
    place.write_text(
        '[[trust]]\npublisher = "acme"\nlevel = 3\n[[trust.sigstore]]\nidentity = "a"\n'
        'issuer = "b"\n\n[[trust]]\npublisher = "other"\n'
    )
    ok("trust", "acme", "--level", "1")
    assert place.read_text() == (
        '[[trust]]\npublisher = "other"\n\n[[trust]]\npublisher = "acme"\nlevel = 1\n'
    )
    tricky = '[[registry]]\nname = """\n[[trust]]\n"""\nurl = "y"\n[[trust]]\npublisher = "acme"\n'
    place.write_text(tricky)
    assert "is not written as [[trust]]" in invoke("trust", "acme", "--level", "2").stderr
    assert place.read_text() == tricky
    place.write_text('trust = [{ publisher = "acme", level = 1 }]\n')
    assert "is not written as [[trust]]" in invoke("trust", "acme", "--level", "2").stderr


def test_a_bar_is_drawn_on_a_terminal_and_nowhere_else(monkeypatch):
    from kernelmill import cli_hub

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for quiet, terminal in ((False, True), (True, True), (False, False)):
        shown = Terminal() if terminal else io.StringIO()
        monkeypatch.setattr(sys, "stderr", shown)
        with cli_hub._Bar(quiet=quiet) as progress:
            for done in (10, 60, 100):
                progress(done, 100)
        drawn = terminal and not quiet
        assert ("downloading 100 B" in shown.getvalue()) is drawn
        assert ("100%" in shown.getvalue()) is drawn


def test_a_trial_import_survives_what_the_kernel_does(tmp_path, clean):  # noqa: F811
    bodies = {
        "raise ValueError('odd')": "raised ValueError while it was imported: odd",
        "import os; os._exit(7)": "the process exited with status 7",
        "import ctypes; ctypes.string_at(0)": "the process was ended by SIGSEGV",
        "import time; time.sleep(60)": "it did not end within 3 s",
        "import subprocess; subprocess.Popen(['sleep', '60']).wait()": "it did not end within 3 s",
        "x = 1": None,
    }
    for number, (body, text) in enumerate(bodies.items()):
        root = write_project(tmp_path / str(number), files={"__init__.py": body})
        done = invoke("verify", str(root), "--import", "--timeout", "3" if "60" in body else "60")
        assert (done.exit_code, (text or "import      yes") in done.stdout) == (int(text is not None), True), done.stdout  # fmt: skip


def test_serve_runs_until_it_is_interrupted(tmp_path):
    command = [sys.executable, "-m", "kernelmill", "serve", str(tmp_path / "r"), "--port", "0", "--writable"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        endpoint = process.stdout.readline().removeprefix("export HF_ENDPOINT=").strip()
        assert endpoint.startswith("http://127.0.0.1:")
        root = write_project(tmp_path / "p")
        done = ok("push", "me/twice", "--project", str(root), "--registry", endpoint)
        assert "v1 is now at" in done.stdout
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
    assert process.returncode == 0
    assert said.splitlines()[-1] == "stopped"
    files = FilesRegistry(open_shelf(str(tmp_path / "r")))
    assert files.refs("me/twice").branch("v1") is not None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["serve", "x", "--writable", "--host", "0.0.0.0"], "--writable lets everybody write"),
        (["serve", "x", "--port", "65536"], "65536 is not in the range 0<=x<=65535"),
        (["serve", "x", "--port", "0"], "and nobody may write"),
        (
            ["serve", ".", "--host", "192.0.2.1", "--port", "80"],
            "nothing can listen on 192.0.2.1 port 80: cannot assign requested address\n\nhint: ",
        ),
        (["push", "twice", "--registry", "."], "accepted: organization/name"),
        (["download", "twice", "--version", "1"], "accepted: organization/name"),
        (["download", "org/x"], "which version of org/x is wanted is not said\n\nhint: --version"),
        (["sync"], "no lock was found; looked in: "),
        (["trust", "acme", "--registry", ""], "the rule.registry is ''; accepted: a text"),
        (["verify", "org/x", "--version", "=>1"], "accepted: an integer from 0, or a range"),
        (["info", "org/none", "--version", "1", "--offline"], "is not in the cache"),
        (
            ["sync", "--lockfile", "/nowhere/kernelmill.lock"],
            "there is no /nowhere/kernelmill.lock",
        ),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path, monkeypatch, clean, arguments, text):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    done = invoke(*arguments)
    assert (done.exit_code, text in done.stderr, done.stdout) == (1, True, ""), done.stderr


def test_a_kernel_in_a_directory_needs_no_registry(tmp_path, clean):  # noqa: F811
    root = write_project(tmp_path / "p", variants=["torch-cpu", "torch-universal"])
    with override(hub_offline=True):
        assert len(json.loads(ok("verify", str(root), "--all-variants", "--json").stdout)) == 2
    (root / "build/torch-cpu/data.bin").write_bytes(b"x")
    done = invoke("verify", str(root), "--all-variants")
    assert "error: 1 of 2 variants fail: torch-cpu" in done.stderr
    forget_kernels()
