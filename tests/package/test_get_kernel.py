"""Kernels by name: found, downloaded, verified, loaded; online, offline, beside the real clients."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest

from hub_clients import clean, forget_kernels, publish, served  # noqa: F401 - fixtures
from kernel_packages import write_metadata, write_project
from kernelmill import hub
from kernelmill.config import override
from kernelmill.errors import (
    IntegrityError,
    KernelImportError,
    NotPublishedError,
    PackageError,
    RegistryError,
    TrustError,
)
from kernelmill.package.cache import HubCache
from kernelmill.package.obtain import Shelves, local_overrides
from kernelmill.package.registry import Add
from kernelmill.package.registry_files import FilesRegistry
from kernelmill.package.shelf import open_shelf

pytestmark = pytest.mark.usefixtures("served")


def requests(server):
    found = [r for r in server.log.requests if "agent-harnesses" not in r]
    server.log.requests.clear()
    return found


def test_a_kernel_is_found_downloaded_and_loaded(served, tmp_path):  # noqa: F811
    commit = publish(served, write_project(tmp_path / "p"))
    kernel = hub.get_kernel("org/twice", version=1)
    assert kernel.twice(21) == 42
    assert commit in kernel.__file__
    (one,) = hub.loaded()
    assert (one.variant.origin.repo_id, one.variant.origin.commit) == ("org/twice", commit)
    assert hub.get_kernel("org/twice", revision=commit) is kernel
    assert hub.get_kernel("org/twice", revision=commit[:9]) is kernel
    assert hub.get_kernel("org/twice", revision="v1") is kernel


def test_the_newest_version_in_a_range_is_taken(served, tmp_path):  # noqa: F811
    for number, text in ((1, "1.4.0"), (2, "2.1.0"), (3, "3.0.0")):
        publish(served, write_project(tmp_path / text, version=number, semantic=text), branch=f"v{number}")  # fmt: skip
    assert hub.get_kernel("org/twice", version=">=1.1,<3").VERSION == "2.1.0"
    assert hub.get_kernel("org/twice", version="<2").VERSION == "1.4.0"
    assert hub.get_kernel("org/twice", version=3).VERSION == "3.0.0"
    assert len(hub.loaded()) == 3
    with pytest.raises(NotPublishedError, match=r"no version in the range >=4; published: 3.0.0, 2.1.0, 1.4.0"):  # fmt: skip
        hub.get_kernel("org/twice", version=">=4")


def test_no_file_is_asked_for_twice(served, tmp_path):  # noqa: F811
    commit = publish(served, write_project(tmp_path / "p"))
    hub.get_kernel("org/twice", version=1)
    assert len([r for r in requests(served) if "/resolve/" in r and "/build/" in r]) == 6 - 1
    forget_kernels()
    hub.get_kernel("org/twice", version=1)
    assert not [r for r in requests(served) if "/build/" in r]
    forget_kernels()
    assert hub.get_kernel("org/twice", revision=commit).twice(1) == 2


def test_what_was_fetched_online_works_offline(served, tmp_path):  # noqa: F811
    """After an online get_kernel(version=1), `kernels` 0.17.2 fails offline with the same call."""
    publish(served, write_project(tmp_path / "p", semantic="1.2.0"))
    hub.get_kernel("org/twice", version=1)
    requests(served)
    forget_kernels()
    with override(hub_offline=True):
        for ask in ({"version": 1}, {"version": ">=1.1,<2"}, {"revision": "v1"}):
            assert hub.get_kernel("org/twice", **ask).twice(2) == 4
        with pytest.raises(NotPublishedError, match=r"no registry is asked while offline; cached: v1 \("):  # fmt: skip
            hub.get_kernel("org/twice", version=2)
    assert requests(served) == []


def test_what_we_fetch_kernels_loads_offline(served, tmp_path, monkeypatch):  # noqa: F811
    """The cache is filled by us, refs included; the real client then needs no network."""
    publish(served, write_project(tmp_path / "p"))
    hub.get_kernel("org/twice", version=1)
    text = """
    import kernels
    print(kernels.get_kernel("org/twice", version=1).twice(4))
    print(kernels.get_kernel("org/twice", revision="v1").twice(5))
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "KERNELS_"))}
    environment |= {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hf-cache")}
    run = [sys.executable, "-c", textwrap.dedent(text)]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["8", "10"]


def test_the_variables_of_the_hub_client_do_no_harm(served, tmp_path):  # noqa: F811
    """Under HF_HUB_DISABLE_TELEMETRY, `kernels` 0.17.2 sends a header that its own library refuses."""
    publish(served, write_project(tmp_path / "p"))
    text = """
    from kernelmill import hub
    print(hub.get_kernel("org/twice", version=1).twice(4))
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "KERNELS_"))}
    environment |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_ENDPOINT": served.endpoint}
    environment |= {"HF_HOME": str(tmp_path / "home"), "KERNELMILL_HUB_CONFIG": str(tmp_path / "x")}
    run = [sys.executable, "-c", textwrap.dedent(text)]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=600)
    assert (done.stdout.strip(), done.returncode) == ("8", 0), done.stderr
    assert list((tmp_path / "home/hub").glob("kernels--org--twice/refs/v1"))


def test_what_kernels_fetched_we_load_offline(served, tmp_path):  # noqa: F811
    import kernels

    commit = publish(served, write_project(tmp_path / "p"))
    kernels.get_kernel("org/twice", version=1)
    with override(hub_offline=True):
        with pytest.raises(TrustError) as caught:
            hub.get_kernel("org/twice", revision=commit)
        assert "kernelmill trust org --registry hub" in caught.value.hint
        kernel = hub.get_kernel("org/twice", revision=commit, trust=["org/twice"])
    assert kernel.twice(3) == 6


def test_only_the_variant_for_this_system_is_downloaded(served, tmp_path):  # noqa: F811
    publish(served, write_project(tmp_path / "p", variants=["torch-cpu", "torch-universal", "torch-cuda"]))  # fmt: skip
    kernel = hub.get_kernel("org/twice", version=1, backend="cpu")
    assert "/build/torch-cpu/" in kernel.__file__
    build = next((tmp_path / "hf-cache").glob("kernels--org--twice/snapshots/*/build"))
    assert [p.name for p in build.iterdir()] == ["torch-cpu"]


def test_offline_the_variant_is_chosen_among_all_published_ones(served, tmp_path):  # noqa: F811
    """Not silently another one, because it alone is in the cache."""
    publish(served, write_project(tmp_path / "p", variants=["torch-cpu", "torch-universal"]))
    hub.get_kernel("org/twice", version=1, backend="cpu")
    build = next((tmp_path / "hf-cache").glob("kernels--org--twice/snapshots/*/build"))
    shutil.move(build / "torch-cpu", build / "torch-universal")
    forget_kernels()
    with override(hub_offline=True), pytest.raises(PackageError) as caught:
        hub.get_kernel("org/twice", version=1, backend="cpu")
    assert "the variant for this system, torch-cpu, is not in the cache; cached: torch-universal" in str(caught.value)  # fmt: skip


# ----------------------------------------------------------------------------- trust


def write_rules(tmp_path, text):
    (tmp_path / "hub.toml").write_text(textwrap.dedent(text))


def test_who_is_not_trusted_is_not_even_asked_for(served, tmp_path):  # noqa: F811
    publish(served, write_project(tmp_path / "p"), "stranger/twice")
    with pytest.raises(TrustError) as caught:
        hub.get_kernel("stranger/twice", version=1)
    assert str(caught.value) == (
        "stranger/twice from the registry 'hub' is not trusted: no rule names 'stranger', and "
        "that registry does not vouch for its publisher; nothing of it was downloaded or imported"
        "\n\nhint: `kernelmill trust stranger --registry hub` allows its kernels"
    )
    assert requests(served) == ["GET /api/organizations/stranger/overview"]
    assert not (tmp_path / "hf-cache").exists()
    write_rules(tmp_path, '[[trust]]\npublisher = "stranger"\n')
    assert hub.get_kernel("stranger/twice", version=1).twice(1) == 2
    assert not [r for r in requests(served) if "organizations" in r]


def test_a_rule_can_refuse_whom_the_registry_trusts(served, tmp_path):  # noqa: F811
    publish(served, write_project(tmp_path / "p"))
    write_rules(tmp_path, '[[trust]]\npublisher = "org"\nlevel = 0\n')
    with pytest.raises(TrustError, match="the rule for 'org' refuses its kernels"):
        hub.get_kernel("org/twice", version=1)


@pytest.mark.parametrize("trust", [True, ["org/twice"]])
def test_a_call_vouches_where_no_rule_decides_and_weakens_none(served, tmp_path, trust):  # noqa: F811
    publish(served, write_project(tmp_path / "p", digest=False), "stranger/twice")
    publish(served, write_project(tmp_path / "q", digest=False))
    names = trust if trust is True else ["stranger/twice"]
    assert hub.get_kernel("stranger/twice", version=1, trust=names).twice(1) == 2
    forget_kernels()
    for level, kind, text in ((0, TrustError, "refuses"), (2, IntegrityError, "holds no digest")):
        write_rules(tmp_path, f'[[trust]]\npublisher = "org"\nlevel = {level}\n')
        with pytest.raises(kind, match=text):
            hub.get_kernel("org/twice", version=1, trust=trust)


@pytest.mark.parametrize("trust", ["stranger/twice-and-more", "stranger/twice", 1, None])
def test_what_vouches_for_nobody_is_refused(served, tmp_path, trust):  # noqa: F811
    publish(served, write_project(tmp_path / "p"), "stranger/twice")
    with pytest.raises(PackageError, match="^trust is .*; accepted: True, False, a list of rep"):
        hub.get_kernel("stranger/twice", version=1, trust=trust)


def test_level_2_needs_a_digest(served, tmp_path):  # noqa: F811
    publish(served, write_project(tmp_path / "p", digest=False))
    assert hub.get_kernel("org/twice", version=1).twice(1) == 2
    forget_kernels()
    write_rules(tmp_path, '[[trust]]\npublisher = "org"\nlevel = 2\n')
    with pytest.raises(IntegrityError, match="holds no digest of the files"):
        hub.get_kernel("org/twice", version=1)
    publish(served, write_project(tmp_path / "q"))
    assert hub.get_kernel("org/twice", version=1).twice(1) == 2


def test_a_digest_that_does_not_hold_is_refused_at_level_1_too(served, tmp_path):  # noqa: F811
    root = write_project(tmp_path / "p")
    (root / "build/torch-universal/data.bin").write_bytes(b"not as the digest says")
    publish(served, root)
    with pytest.raises(IntegrityError, match="data.bin: expected"):
        hub.get_kernel("org/twice", version=1)
    assert not hub.loaded()


# ----------------------------------------------------------------------------- tampering


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: swap(d / "__init__.py", b"raise AssertionError('imported')"), "__init__.py: the commit has"),
        (lambda d: swap(d / "metadata.json", None), "metadata.json: the commit has"),
        (lambda d: (d / "extra.py").write_text(""), "extra.py: unknown"),
        (lambda d: (d / "evil.py").symlink_to("/etc/hostname"), "is a link out of its repository"),
    ],
)  # fmt: skip
def test_a_tampered_cache_is_refused_before_import(served, tmp_path, change, text):  # noqa: F811
    publish(served, write_project(tmp_path / "p"))
    hub.get_kernel("org/twice", version=1)
    forget_kernels()
    directory = next((tmp_path / "hf-cache").glob("kernels--org--twice/snapshots/*/build/*"))
    change(directory)
    with pytest.raises(IntegrityError, match=text):
        hub.get_kernel("org/twice", version=1)
    assert not hub.loaded()


def swap(link, body):
    """Change a content in the cache and keep its size, as only a hash can tell."""
    blob = link.resolve()
    old = blob.read_bytes()
    if body is None:
        body = old.replace(b"Apache-2.0", b"Apache-3.0")
    blob.write_bytes(body.ljust(len(old), b"#")[: len(old)])


def test_files_put_in_the_place_of_links_are_links_again(served, tmp_path):  # noqa: F811
    """Metadata and file agree with each other, and not with the commit: they are not used."""
    publish(served, write_project(tmp_path / "p"))
    hub.get_kernel("org/twice", version=1)
    forget_kernels()
    directory = next((tmp_path / "hf-cache").glob("kernels--org--twice/snapshots/*/build/*"))
    for path in list(directory.rglob("*")):
        if path.is_symlink():
            body = path.read_bytes()
            path.unlink()
            path.write_bytes(body)
    (directory / "parts/__init__.py").write_text("def half(x): return 'evil'\n")
    made = json.loads((directory / "metadata.json").read_text())
    made.pop("digest")
    write_metadata(directory, made)
    with override(hub_offline=True):
        assert hub.get_kernel("org/twice", version=1).half(3) == 1.5


# ----------------------------------------------------------------------------- dependencies


def with_dependency(tmp_path, need, name="user"):
    body = "from kernelmill.hub import get_kernel_dep\ndep = get_kernel_dep('org/twice')\ntwice = dep.twice\n"
    more = {"kernel-depends": [need]} if isinstance(need.get("version"), int) else {}
    root = write_project(tmp_path / name, name, files={"__init__.py": body}, **more)
    if not more:
        variant = root / "build/torch-universal"
        made = json.loads((variant / "metadata.json").read_text())
        made.pop("digest")
        made["kernelmill"]["kernel-depends"] = [need]
        write_metadata(variant, made)
    return root


@pytest.mark.parametrize("version", [1, ">=1.0,<2"])
def test_a_kernel_brings_what_it_depends_on(served, tmp_path, version):  # noqa: F811
    publish(served, write_project(tmp_path / "p"))
    publish(served, with_dependency(tmp_path, {"repo-id": "org/twice", "version": version}), "org/user")  # fmt: skip
    kernel = hub.get_kernel("org/user", version=1)
    assert kernel.twice(4) == 8
    assert kernel.dep is hub.get_kernel("org/twice", version=1)
    local = hub.get_local_kernel(tmp_path / "user")
    assert local is kernel


def test_circles_are_named(served, tmp_path):  # noqa: F811
    publish(served, write_project(tmp_path / "a", "aa", **{"kernel-depends": [{"repo-id": "org/bb", "version": 1}]}), "org/aa")  # fmt: skip
    publish(served, write_project(tmp_path / "b", "bb", **{"kernel-depends": [{"repo-id": "org/aa", "version": 1}]}), "org/bb")  # fmt: skip
    with pytest.raises(PackageError, match="in a circle: org/aa -> org/bb -> org/aa"):
        hub.get_kernel("org/aa", version=1)
    assert not hub.loaded()


def test_a_dependency_that_is_not_trusted_stops_everything(served, tmp_path):  # noqa: F811
    root = write_project(tmp_path / "a", "aa", files={"__init__.py": "raise AssertionError('imported')"}, **{"kernel-depends": [{"repo-id": "stranger/bb", "version": 1}]})  # fmt: skip
    publish(served, root, "org/aa")
    with pytest.raises(TrustError, match="stranger/bb"):
        hub.get_kernel("org/aa", version=1)


def test_local_kernels_take_the_place_of_registries(served, tmp_path):  # noqa: F811
    write_project(tmp_path / "p", semantic="9.9.9")
    with override(local_kernels=f"org/twice={tmp_path / 'p'}"):
        assert hub.get_kernel("org/twice", version=1).VERSION == "9.9.9"
        publish(served, with_dependency(tmp_path, {"repo-id": "org/twice", "version": 1}), "org/user")  # fmt: skip
        assert hub.get_kernel("org/user", version=1).dep.VERSION == "9.9.9"
    with pytest.raises(PackageError, match="LOCAL_KERNELS has 'org/x'"):
        local_overrides("org/x")


def test_python_distributions_that_are_missing_are_named(served, tmp_path):  # noqa: F811
    root = write_project(tmp_path / "p", **{"python-depends": ["helion"]})
    publish(served, root)
    with pytest.raises(PackageError) as caught:
        hub.get_kernel("org/twice", version=1)
    assert str(caught.value) == "the kernel twice needs helion, which is not installed\n\nhint: pip install 'helion'"  # fmt: skip


def test_an_import_that_fails_leaves_nothing_and_can_be_tried_again(served, tmp_path):  # noqa: F811
    publish(served, write_project(tmp_path / "p", files={"__init__.py": "import sys; sys.exit(1)"}))
    with pytest.raises(KernelImportError, match=r"called sys.exit\(1\)"):
        hub.get_kernel("org/twice", version=1)
    publish(served, write_project(tmp_path / "q"))
    assert hub.get_kernel("org/twice", version=1).twice(1) == 2


# ----------------------------------------------------------------------------- registries


def test_a_registry_of_files_and_its_mirrors(served, tmp_path):  # noqa: F811
    files = FilesRegistry(open_shelf(str(tmp_path / "files")))
    files.create("acme/twice")
    root = write_project(tmp_path / "p", semantic="5.0.0", version=5)
    adds = [Add(str(p.relative_to(root)), p) for p in root.rglob("*") if p.is_file()]
    files.publish("acme/twice", "v5", adds, message="first")
    shutil.copytree(tmp_path / "files", tmp_path / "mirror")
    shutil.rmtree(tmp_path / "files/acme/twice/blobs")
    write_rules(
        tmp_path,
        f"""
        [[registry]]
        name = "company"
        url = "{tmp_path / "files"}"
        mirrors = ["{tmp_path / "nowhere"}", "{tmp_path / "mirror"}"]
        organizations = ["acme"]
        [[trust]]
        publisher = "acme"
        registry = "company"
        """,
    )
    assert hub.get_kernel("acme/twice", version=5).VERSION == "5.0.0"
    forget_kernels()
    shutil.rmtree(tmp_path / "hf-cache")
    shutil.rmtree(tmp_path / "mirror")
    with pytest.raises(RegistryError, match="could not be had from 3 registries") as caught:
        hub.get_kernel("acme/twice", version=5)
    assert "has lost the content" in str(caught.value)
    assert Shelves().settings("acme/twice").name == "company"
    assert Shelves().settings("org/twice").name == "hub"
    with pytest.raises(PackageError, match="there is no registry 'x'; configured: company, hub"):
        hub.get_kernel("acme/twice", version=5, registry="x")


def test_the_same_name_in_another_registry_is_not_taken_from_the_cache(served, tmp_path):  # noqa: F811
    publish(served, write_project(tmp_path / "p"))
    hub.get_kernel("org/twice", version=1)
    forget_kernels()
    write_rules(tmp_path, f'[[registry]]\nname = "other"\nurl = "{tmp_path / "other"}"\n')
    with override(hub_offline=True), pytest.raises(TrustError, match="registry 'other' is not trusted"):  # fmt: skip
        hub.get_kernel("org/twice", version=1)


def test_tokens_come_from_the_variable_that_is_named(served, tmp_path, monkeypatch):  # noqa: F811
    publish(served, write_project(tmp_path / "p"), "org/secret")
    served.service.registry.shelf.write("org/secret/repo.json", b'{"format": 1, "private": true}')
    write_rules(
        tmp_path,
        f'[[registry]]\nname = "private"\nurl = "{served.endpoint}"\ntoken-variable = "MY_TOKEN"\n',
    )
    with pytest.raises(PackageError, match="takes its token from MY_TOKEN, which is not set"):
        hub.get_kernel("org/secret", version=1)
    monkeypatch.setenv("MY_TOKEN", "hf_wrong")
    with pytest.raises(NotPublishedError, match="it is private and no token was given"):
        hub.get_kernel("org/secret", version=1)
    monkeypatch.setenv("MY_TOKEN", "hf_read")
    assert hub.get_kernel("org/secret", version=1).twice(1) == 2


def test_the_cache_is_seen_by_the_hub_client(served, tmp_path):  # noqa: F811
    import huggingface_hub

    commit = publish(served, write_project(tmp_path / "p"))
    hub.get_kernel("org/twice", version=1)
    info = huggingface_hub.scan_cache_dir(tmp_path / "hf-cache")
    assert not info.warnings
    (repo,) = info.repos
    assert (repo.repo_id, repo.repo_type) == ("org/twice", "kernel")
    (revision,) = repo.revisions
    assert (revision.commit_hash, revision.refs) == (commit, frozenset({"v1"}))
    cache = HubCache(tmp_path / "hf-cache")
    assert cache.refs("org/twice") == {"v1": commit}
