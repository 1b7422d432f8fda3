"""What a project must hold: sources that are there, named one by one, and inside of it."""

from __future__ import annotations

import pytest

from kernelmill.errors import ManifestError
from kernelmill.package.manifest import parse_manifest
from kernelmill.package.project import faults_of, require_sound

HEAD = """[general]
name = "my-relu"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda"]
[torch]
src = ["torch-ext/binding.cpp"]
"""


def kernel(src="a.cu", name="k", **more):
    keys = {"backend": '"cuda"', "depends": '["torch"]', "src": f'["{src}"]'} | more
    return f"[kernel.{name}]\n" + "".join(f"{k.replace('_', '-')} = {v}\n" for k, v in keys.items())


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "project"
    (root / "torch-ext" / "my_relu").mkdir(parents=True)
    for name in ("torch-ext/my_relu/__init__.py", "torch-ext/binding.cpp", "a.cu", "b.cu"):
        (root / name).write_text("")
    (tmp_path / "outside.cu").write_text("")
    return root


def faults(root, text):
    return [(fault.key, fault.message) for fault in faults_of(root, parse_manifest(text))]


def test_a_whole_project_is_sound(root):
    require_sound(root, parse_manifest(HEAD + kernel()))


def link(target):
    def make(root):
        (root / "linked.cu").symlink_to(target)

    return make


@pytest.mark.parametrize(
    ("src", "make", "message"),
    [
        ("missing.cu", None, "'missing.cu' is missing"),
        ("A.cu", None, "'A.cu' is missing; a.cu is there"),
        ("a.cpp", None, "'a.cpp' is missing; a.cu is there"),
        ("long_nome.cu", lambda root: (root / "long_name.cu").touch(),
         "'long_nome.cu' is missing; long_name.cu is there"),
        ("*.cu", None, "'*.cu' is a pattern"),
        ("src/[ab].cu", None, "'src/[ab].cu' is a pattern"),
        ("../outside.cu", None, "'../outside.cu' lies out of the project"),
        ("x/../../outside.cu", None, "'x/../../outside.cu' lies out of the project"),
        ("/etc/passwd", None, "'/etc/passwd' is absolute; sources are named from the directory of build.toml"),
        ("", None, "'' is no path"),
        ("torch-ext", None, "'torch-ext' is no file"),
        ("linked.cu", link("../outside.cu"), "'linked.cu' is a link that leads out of the project"),
        ("linked.cu", link("/etc/passwd"), "'linked.cu' is a link that leads out of the project"),
        ("linked.cu", link("linked.cu"), "'linked.cu' is a link that leads out of the project"),
        ("linked.cu", link("nowhere.cu"), "'linked.cu' is a link to nothing"),
    ],
)  # fmt: skip
def test_sources_that_cannot_be_used(root, src, make, message):
    if make:
        make(root)
    found = faults(root, HEAD + kernel(src))
    assert found[0][0] == "kernel.k.src[0]"
    assert found[0][1].startswith(message)
    assert len(found) == 1


def test_a_link_within_the_project_is_a_source(root):
    (root / "linked.cu").symlink_to("a.cu")
    assert faults(root, HEAD + kernel("linked.cu")) == []


def test_a_file_whose_name_looks_like_a_pattern_is_a_source(root):
    (root / "a[1].cu").write_text("")
    assert faults(root, HEAD + kernel("a[1].cu")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (HEAD + kernel() + kernel("./a.cu", "l"), []),  # compiled once, for both
        (
            HEAD.replace("torch-ext/binding.cpp", "a.cu") + kernel(),
            [("kernel.k.src", "'a.cu' stands in `torch.src` too, so cuda would link it twice")],
        ),
        (
            HEAD + kernel('a.cu", "a.cu'),
            [("kernel.k.src", "'a.cu' stands twice there, so cuda would link it twice")],
        ),
        (
            HEAD + kernel(name="a-b") + kernel("b.cu", "a_b"),
            [("kernel.a_b", "2 sections have this name but for dashes")],
        ),
        (
            HEAD.replace('["cpu", "cuda"]', '["cpu", "cpu"]'),
            [("general.backends", "cpu stands there 2 times")],
        ),
        (HEAD.replace('["cpu", "cuda"]', "[]"), [("general.backends", "it is empty, so there is nothing to build")]),
        (
            HEAD + kernel(backend='"rocm"'),
            [("kernel.k.backend", "rocm is not among `general.backends`, so it would never be built")],
        ),
        (HEAD + kernel(cuda_capabilities='["99999.0"]'), [("kernel.k.cuda-capabilities", "no chip has compute capability 99999.0")]),
        (HEAD + kernel(cuda_capabilities='["sm_90"]'), [("kernel.k.cuda-capabilities", "'sm_90' is no compute capability")]),
        (HEAD + kernel(cuda_capabilities='["8.0", "9.0a", "12.0+PTX"]'), []),
        (HEAD + kernel(cuda_capabilities='["8.0", "11.8"]'), []),  # a chip that may come
        (HEAD + kernel(include='["nowhere", ".."]'), [
            ("kernel.k.include[0]", "'nowhere' is no directory of the project"),
            ("kernel.k.include[1]", "'..' lies out of the project"),
        ]),
        (
            HEAD.replace('"my-relu"', '"other"'),
            [("general.name", "the Python side is missing: torch-ext/other/__init__.py")],
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_manifest_of_a_project(root, text, found):
    assert faults(root, text) == found


def test_architectures_of_rocm(root):
    text = HEAD.replace('"cuda"', '"rocm"') + kernel(
        backend='"rocm"', rocm_archs='["gfx942", "gfx99999x"]'
    )
    assert faults(root, text) == [("kernel.k.rocm-archs", "'gfx99999x' is no architecture of ROCm")]


def test_everything_is_said_at_once(root):
    with pytest.raises(ManifestError) as caught:
        require_sound(root, parse_manifest(HEAD + kernel("*.cu") + kernel("c.cu", "l")))
    assert str(caught.value) == (
        f"{root}/build.toml: 2 things are wrong\n"
        "  `kernel.k.src[0]`: '*.cu' is a pattern\n"
        "  `kernel.l.src[0]`: 'c.cu' is missing\n\n"
        "hint: each source is named: a pattern would hide a missing file"
    )
