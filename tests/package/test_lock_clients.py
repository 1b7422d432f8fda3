"""Our locks in the hands of the real `kernels`, through a server: the same bytes, and they load."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hub_clients import clean, publish, served  # noqa: F401 - fixtures
from kernel_packages import write_project
from kernelmill import hub as our_hub
from kernelmill.config import override
from kernelmill.package.dependencies import read_dependencies
from kernelmill.package.lock_make import make_lock, write_lock
from kernelmill.package.push import plan_push, push
from kernelmill.package.registry import Add
from kernelmill.package.registry_hub import HubRegistry
from kernelmill.package.serve import Server
from kernelmill.package.versions import survey
from published_kernels import new_registry, release

pytestmark = pytest.mark.filterwarnings("ignore:Use .content=:DeprecationWarning")
kernels = pytest.importorskip("kernels")

INTEGERS = '[tool.kernels.dependencies]\n"org/top" = 1\n"org/base" = 1\n'
RANGES = '[tool.kernelmill.dependencies]\n"org/top" = ">=1,<2"\n'


@pytest.fixture
def world(served, tmp_path):  # noqa: F811
    inner = served.service.registry
    release(inner, "org/base", "1.4.0", needs=[])
    release(inner, "org/base", "2.0.0")
    code = "from kernels import get_kernel_dep\nbase = get_kernel_dep('org/base')\n"
    answer = "def answer():\n    return base.answer()\n"
    release(
        inner, "org/top", "1.0.0", needs=[("org/base", 2)], files={"__init__.py": code + answer}
    )
    release(
        inner, "org/top", "1.1.0", needs=[("org/base", 2)], files={"__init__.py": code + answer}
    )
    return SimpleNamespace(server=served, inner=inner, hub=HubRegistry(served.endpoint))


def about_kernels(server):
    """The requests that came in, without what huggingface_hub asks once a process for itself."""
    return [line for line in server.log.requests if "/kernels/" in line]


def make(place, text):
    place.mkdir()
    (place / "pyproject.toml").write_text(text)
    return place


def test_the_lock_of_a_project_with_integers_is_theirs(world, tmp_path):
    from kernels.cli.lock import lock_kernels

    theirs, ours = make(tmp_path / "theirs", INTEGERS), make(tmp_path / "ours", INTEGERS)
    lock_kernels(SimpleNamespace(project_dir=theirs))
    write_lock(ours, make_lock(world.hub, read_dependencies(ours)))
    assert (ours / "kernels.lock").read_bytes() == (theirs / "kernels.lock").read_bytes()


def test_what_we_lock_they_download_and_load(world, tmp_path):
    from kernels.cli.download import download_kernels

    place = make(tmp_path / "project", RANGES)
    write_lock(place, make_lock(world.hub, read_dependencies(place)))
    release(world.inner, "org/base", "2.0.1")  # what comes later is not loaded
    download_kernels(SimpleNamespace(project_dir=place, all_variants=False))
    world.server.log.requests.clear()
    kernel = kernels.load_kernel("org/top", lockfile=place / "kernels.lock")
    assert kernel.answer() == "kernel-base 2.0.0"
    assert not world.server.log.requests
    again = kernels.get_locked_kernel("org/top", lockfile=place / "kernels.lock")
    assert again.answer() == "kernel-base 2.0.0"


def test_a_hundred_dependencies_take_four_requests_each(clean, tmp_path):  # noqa: F811
    registry = new_registry("memory://locked-by-requests")
    rows = []
    for n in range(100):
        release(registry, f"org/k{n:02}", "1.0.0")
        rows.append(f'"org/k{n:02}" = ">=1"')
    place = make(tmp_path / "project", "[tool.kernelmill.dependencies]\n" + "\n".join(rows))
    asked = read_dependencies(place)
    with Server(registry) as server:
        made = make_lock(HubRegistry(server.endpoint, token=False), asked)
        assert len(server.log.requests) <= 4 * 100
    assert len(made.lock.kernels) == 100


def test_from_push_to_lock_to_both_clients(served, tmp_path):  # noqa: F811
    """Two versions pushed by us; the index names both, the lock takes one, both clients load it."""
    hub = HubRegistry(served.endpoint)
    commits = {}
    for version in ("1.0.0", "1.1.0"):
        root = write_project(tmp_path / version, semantic=version, license="MIT")
        commits[version] = push(plan_push(root, "org/twice", hub), hub).commit
    served.log.requests.clear()
    found = survey(hub, "org/twice")
    assert len(about_kernels(served)) == 1
    assert {str(one.published): one.published.commit for one in found} == commits
    text = '[tool.kernelmill.dependencies]\n"org/twice" = "<1.1"\n'
    place = make(tmp_path / "project", text)
    write_lock(place, make_lock(hub, read_dependencies(place)))
    with override(hub_endpoint=served.endpoint, hub_cache=tmp_path / "our-cache"):
        ours = our_hub.get_locked_kernel("org/twice", lockfile=place / "kernelmill.lock")
        assert our_hub.load_kernel("org/twice", lockfile=place / "kernels.lock") is ours
        newest = our_hub.get_kernel("org/twice", version=1)
    theirs = kernels.get_locked_kernel("org/twice", lockfile=place / "kernels.lock")
    assert (ours.VERSION, theirs.VERSION, newest.VERSION) == ("1.0.0", "1.0.0", "1.1.0")
    assert ours.twice(21) == theirs.twice(21) == 42


def test_what_we_fetched_in_part_they_find_offline(served, tmp_path):  # noqa: F811
    """`kernels` refuses what it fetched in part itself: its library notes what is missing."""
    more = Add("benchmarks/benchmark_x.py", b"x")
    publish(served, write_project(tmp_path / "p", license="MIT"), extra=[more])
    place = make(tmp_path / "project", '[tool.kernels.dependencies]\n"org/twice" = 1\n')
    write_lock(place, make_lock(HubRegistry(served.endpoint), read_dependencies(place)))
    ours = our_hub.get_locked_kernel("org/twice", lockfile=place / "kernelmill.lock")
    served.log.requests.clear()
    theirs = kernels.load_kernel("org/twice", lockfile=place / "kernels.lock")
    assert (ours.twice(4), theirs.twice(4)) == (8, 8)
    assert not served.log.requests


def test_versions_take_one_request_each_beside_the_references(served):  # noqa: F811
    for version in ("1.0.0", "2.0.0", "3.0.0"):
        release(served.service.registry, "org/plain", version, index=False, semantic=False)
    registry = HubRegistry(served.endpoint)
    served.log.requests.clear()
    assert [str(one.published) for one in survey(registry, "org/plain", index=False)] == [
        "3", "2", "1",
    ]  # fmt: skip
    assert len(about_kernels(served)) == 4
    served.log.requests.clear()
    survey(registry, "org/plain")
    assert len(about_kernels(served)) == 5  # and one that looked for an index
