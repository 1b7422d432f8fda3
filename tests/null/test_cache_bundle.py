"""The form of a bundle on disk: round trip, limits, and that no changed byte is ever used."""

import hashlib
import json
import math
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernelmill.cache import Bundle, EntryPoint, Image, digest, read_bundle, write_bundle
from kernelmill.cache import bundle as form
from kernelmill.errors import ArgumentError

KEY = digest(test="bundle")

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
attributes = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
images = st.builds(
    Image,
    target=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,63}", fullmatch=True),
    suffix=st.from_regex(r"[a-z0-9]{1,16}", fullmatch=True),
    data=st.binary(max_size=300),
)
bundles = st.builds(
    Bundle,
    images=st.lists(images, max_size=3).map(tuple),
    entries=st.lists(
        st.builds(EntryPoint, texts, st.dictionaries(texts, attributes, max_size=4)), max_size=3
    ).map(tuple),
    signature=texts,
    source=st.text(max_size=100),  # any text, halves of surrogate pairs included
    source_suffix=st.sampled_from(["cpp", "cu", "ptx"]),
    key=st.just(KEY),
)
SMALL = Bundle(
    images=(Image("cpu", "so", b"\x7fELF and so on"), Image("sm_90", "cubin", bytes(range(99)))),
    entries=(EntryPoint("km_kernel", {"threads": 256, "name": "sum", "scale": 0.5, "fast": True}),),
    signature="f32(f32, f32)",
    source="int f();\n",
    key=KEY,
)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Return a function that gives a path where nothing is yet; hypothesis calls it at will."""
    base = tmp_path_factory.mktemp("bundles")
    numbers = iter(range(10**9))
    return lambda: base / str(next(numbers))


@given(bundles)
@settings(deadline=None)
def test_what_is_written_is_read(places, bundle):
    place = places()
    written = write_bundle(place, bundle)
    found = read_bundle(place, key=KEY)
    assert found == bundle == written
    assert found.digest == written.digest != ""
    assert [type(v) for e in found.entries for v in e.attributes.values()] == [
        type(e.attributes[name])
        for e, f in zip(bundle.entries, found.entries, strict=True)
        for name in f.attributes
    ]
    for image, other in zip(found.images, written.images, strict=True):
        assert image.path == other.path
        assert image.path.read_bytes() == image.data
    shutil.rmtree(place)


def test_the_files_are_ours_alone_and_the_source_is_headed_by_the_key(tmp_path):
    place = tmp_path / "b"
    write_bundle(place, SMALL)
    assert sorted(path.name for path in place.iterdir()) == [
        "image-0.so",
        "image-1.cubin",
        "manifest",
        "source.cpp",
    ]
    assert (place / "source.cpp").read_text() == f"// kernelmill {KEY}\nint f();\n"
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}
    assert place.stat().st_mode & 0o777 == 0o700


def test_the_digest_depends_on_every_member(tmp_path):
    changed = [
        replace(SMALL, images=SMALL.images[:1]),
        replace(SMALL, images=(Image("cpu", "so", b"\x7fELF and so om"), SMALL.images[1])),
        replace(SMALL, images=(replace(SMALL.images[0], target="x86"), SMALL.images[1])),
        replace(SMALL, entries=()),
        replace(SMALL, signature="f64(f64)"),
        replace(SMALL, source="int g();\n"),
        replace(SMALL, key=digest(test="another")),
    ]
    digests = [
        write_bundle(tmp_path / str(i), bundle).digest for i, bundle in enumerate([SMALL, *changed])
    ]
    assert len(set(digests)) == len(digests)
    assert write_bundle(tmp_path / "again", SMALL).digest == digests[0]


def test_an_image_is_found_by_its_target():
    assert SMALL.image("sm_90") is SMALL.images[1]
    with pytest.raises(ArgumentError) as caught:
        SMALL.image("sm_80")
    assert str(caught.value) == "there is no image for target 'sm_80'; targets: cpu, sm_90"


ATTRIBUTES = "bool, 64-bit int, finite float, text"


@pytest.mark.parametrize(
    ("bundle", "text"),
    [
        (
            replace(SMALL, key="abc"),
            "manifest.key 'abc'; accepted: text that matches [0-9a-f]{64}",
        ),
        (
            replace(SMALL, images=(Image("../x", "so", b""),)),
            (
                "manifest.images[0].target '../x'; "
                "accepted: text that matches [A-Za-z0-9][A-Za-z0-9_.:+-]{0,63}"
            ),
        ),
        (
            replace(SMALL, images=(Image("cpu", "s/o", b""),)),
            "manifest.images[0].suffix 's/o'; accepted: text that matches [a-z0-9]{1,16}",
        ),
        (
            replace(SMALL, source_suffix=""),
            "manifest.source.suffix ''; accepted: text that matches [a-z0-9]{1,16}",
        ),
        (
            replace(SMALL, signature="x" * (1 << 20) + "y"),
            (
                f"manifest.signature {'x' * 60!r}... of 1048577 characters; "
                "accepted: text of at most 1048576 characters, no surrogates"
            ),
        ),
        (
            replace(SMALL, entries=(EntryPoint("f", {"x": 2**63}),)),
            f"manifest.entries[0].attributes['x'] 9223372036854775808; accepted: {ATTRIBUTES}",
        ),
        (
            replace(SMALL, entries=(EntryPoint("f", {"x": math.inf}),)),
            f"manifest.entries[0].attributes['x'] inf; accepted: {ATTRIBUTES}",
        ),
        (
            replace(SMALL, entries=(EntryPoint("f", {"x": 10**5000}),)),
            f"manifest.entries[0].attributes['x'] int of 16610 bits; accepted: {ATTRIBUTES}",
        ),
        (
            replace(SMALL, entries=(EntryPoint("f", {"x": [1, 2]}),)),
            f"manifest.entries[0].attributes['x'] list of 2; accepted: {ATTRIBUTES}",
        ),
        (
            replace(SMALL, entries=(EntryPoint("f", {"x": {}}),)),
            f"manifest.entries[0].attributes['x'] object of 0; accepted: {ATTRIBUTES}",
        ),
        (
            replace(SMALL, entries=(EntryPoint("f", {"x": b"1"}),)),
            f"manifest.entries[0].attributes['x'] bytes; accepted: {ATTRIBUTES}",
        ),
        (
            replace(SMALL, entries=(EntryPoint("f", {"x": None}),)),
            f"manifest.entries[0].attributes['x'] None; accepted: {ATTRIBUTES}",
        ),
        (
            replace(SMALL, entries=(EntryPoint("\ud800"),)),
            (
                "manifest.entries[0].name '\\ud800'; "
                "accepted: text of at most 1024 characters, no surrogates"
            ),
        ),
    ],
)
def test_what_the_reader_would_refuse_is_not_written(tmp_path, bundle, text):
    with pytest.raises(ArgumentError) as caught:
        write_bundle(tmp_path / "b", bundle)
    assert caught.value.message == f"a bundle cannot hold {text}"
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("limit", "bundle"),
    [
        ("MAX_IMAGES", replace(SMALL, images=(Image("cpu", "so", b""),) * 257)),
        ("MAX_ENTRIES", replace(SMALL, entries=(EntryPoint("f"),) * 4097)),
        (
            "MAX_ATTRIBUTES",
            replace(SMALL, entries=(EntryPoint("f", dict.fromkeys(map(str, range(65)), 1)),)),
        ),
    ],
)
def test_counts_are_bounded(tmp_path, limit, bundle):
    with pytest.raises(ArgumentError, match=f"at most {getattr(form, limit)}"):
        write_bundle(tmp_path / "b", bundle)


def test_a_manifest_above_its_limit_is_not_written(tmp_path):
    attributes = dict.fromkeys(map(str, range(64)), "x" * 65_536)
    with pytest.raises(ArgumentError, match=r"a manifest of bytes \d+; accepted: at most 4194304"):
        write_bundle(tmp_path / "b", replace(SMALL, entries=(EntryPoint("f", attributes),)))
    assert not (tmp_path / "b").exists()


def test_nothing_is_written_over(tmp_path):
    write_bundle(tmp_path / "b", SMALL)
    with pytest.raises(FileExistsError):
        write_bundle(tmp_path / "b", SMALL)


def test_no_directory_is_a_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_bundle(tmp_path / "b")


def test_a_bundle_of_another_key_is_refused(tmp_path):
    write_bundle(tmp_path / "b", SMALL)
    other = digest(test="another")
    with pytest.raises(ArgumentError) as caught:
        read_bundle(tmp_path / "b", key=other)
    assert str(caught.value) == f"the bundle was made for key {KEY}, not for {other}"
    assert read_bundle(tmp_path / "b") == SMALL


# ------------------------------------------------------------------------------ corruption


def test_every_flipped_bit_of_every_file_is_found(places):
    place = places()
    write_bundle(place, SMALL)
    flips = 0
    for path in sorted(place.iterdir()):
        good = path.read_bytes()
        for offset in range(len(good)):
            bad = bytearray(good)
            bad[offset] ^= 1 << (offset % 8)
            path.write_bytes(bad)
            with pytest.raises(ArgumentError):
                read_bundle(place)
            flips += 1
        path.write_bytes(good)
    assert flips > 800
    assert read_bundle(place) == SMALL


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_any_other_bytes_in_any_file_are_found(places, data):
    place = places()
    write_bundle(place, SMALL)
    path = data.draw(st.sampled_from(sorted(place.iterdir())))
    good = path.read_bytes()
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, len(good)))
    bad = good[:start] + data.draw(st.binary(max_size=50)) + good[end:]
    assume(bad != good)
    path.write_bytes(bad)
    with pytest.raises(ArgumentError):
        read_bundle(place)
    shutil.rmtree(place)


def link_to_a_copy(path, tmp_path):
    shutil.move(path, tmp_path / "copy")
    path.symlink_to(tmp_path / "copy")


def directory(path, _):
    path.unlink()
    path.mkdir()


def pipe(path, _):
    path.unlink()
    os.mkfifo(path)


def sparse(path, _):
    os.truncate(path, 1 << 40)


INSTEAD = {
    "absent": (lambda path, _: path.unlink(), r"cannot be opened: No such file or directory"),
    "empty": (lambda path, _: os.truncate(path, 0), r"has 0 bytes|does not begin"),
    "sparse": (sparse, r"has 1099511627776 bytes; the limit is \d+"),
    "link": (link_to_a_copy, r"cannot be opened: Too many levels of symbolic links"),
    "directory": (directory, r"is not a regular file"),
    "pipe": (pipe, r"is not a regular file"),
}


@pytest.mark.parametrize("name", ["manifest", "source.cpp", "image-0.so", "image-1.cubin"])
@pytest.mark.parametrize("kind", INSTEAD)
def test_something_else_in_the_place_of_a_file_is_refused(tmp_path, name, kind):
    write_bundle(tmp_path / "b", SMALL)
    change, text = INSTEAD[kind]
    change(tmp_path / "b" / name, tmp_path)
    with pytest.raises(ArgumentError, match=text):
        read_bundle(tmp_path / "b")


def test_files_of_another_bundle_are_found(tmp_path):
    other = replace(SMALL, images=tuple(replace(i, data=i.data[::-1]) for i in SMALL.images))
    write_bundle(tmp_path / "a", SMALL)
    write_bundle(tmp_path / "b", other)
    for path in (tmp_path / "b").iterdir():
        if path.read_bytes() == (tmp_path / "a" / path.name).read_bytes():
            continue  # the source is the same
        good = path.read_bytes()
        shutil.copy(tmp_path / "a" / path.name, path)
        with pytest.raises(ArgumentError, match="sha256"):
            read_bundle(tmp_path / "b")
        path.write_bytes(good)


def test_a_link_to_a_bundle_is_not_followed(tmp_path):
    write_bundle(tmp_path / "b", SMALL)
    (tmp_path / "link").symlink_to(tmp_path / "b")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        read_bundle(tmp_path / "link")


def test_a_source_without_its_key_is_refused(tmp_path):
    for i, source in enumerate([b"// kernelmill 0\n", b"// kernelmill %b\n\xff" % KEY.encode()]):
        place = tmp_path / str(i)
        write_bundle(place, SMALL)
        body = manifest_body(place)
        body["source"] |= {"sha256": hashlib.sha256(source).hexdigest(), "size": len(source)}
        forge(place, json.dumps(body).encode())
        (place / "source.cpp").write_bytes(source)
        with pytest.raises(ArgumentError, match=r"begin with the bundle's key|is not UTF-8"):
            read_bundle(place)


# ----------------------------------------------------- hostile manifests, with a right sha256


def manifest_body(place: Path):
    return json.loads((place / "manifest").read_bytes().split(b"\n", 1)[1])


def forge(place: Path, body: bytes, version: bytes = b"1"):
    header = b"kernelmill-bundle %b %b\n" % (version, hashlib.sha256(body).hexdigest().encode())
    (place / "manifest").write_bytes(header + body)


HOSTILE = {
    "deep": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000,
    "huge integer": b"9" * 5_000,
    "not UTF-8": b'"\xff"',
    "empty": b"",
    "null": b"null",
    "two": b"{} {}",
    "nan": b"NaN",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest_is_refused(tmp_path, body):
    write_bundle(tmp_path / "b", SMALL)
    forge(tmp_path / "b", body)
    with pytest.raises(ArgumentError, match=r"not JSON|a bundle cannot hold manifest"):
        read_bundle(tmp_path / "b")


def test_no_depth_of_nesting_is_another_error(tmp_path):
    write_bundle(tmp_path / "b", SMALL)
    for depth in range(700, 1100, 3):
        forge(tmp_path / "b", b"[" * depth + b"]" * depth)
        with pytest.raises(
            ArgumentError, match=r"not JSON|a bundle cannot hold manifest list of 1"
        ):
            read_bundle(tmp_path / "b")


def test_a_manifest_of_another_format_is_refused(tmp_path):
    write_bundle(tmp_path / "b", SMALL)
    forge(tmp_path / "b", json.dumps(manifest_body(tmp_path / "b")).encode(), b"2")
    with pytest.raises(ArgumentError) as caught:
        read_bundle(tmp_path / "b")
    assert str(caught.value) == "the bundle is of format 2; this reader knows 1"


CHANGES = [
    (["images", 0, "size"], [-1, 10**30, 1.0, True, "5", None, 1 << 31]),
    (["images", 0, "suffix"], ["../../so", "so\0", "", "SO", 5, "so/../../x", "so\n"]),
    (["images", 0, "target"], ["", "a" * 65, None, "x\n"]),
    (["images", 0, "sha256"], ["0" * 63, "G" * 64, None, "0" * 64]),
    (["images"], [{}, None, "images", [[]] * 300]),
    (["entries", 0, "attributes"], [[], None, {"x": []}, {"x": {}}, {"x": None}, {"x": 1 << 64}]),
    (["entries", 0, "name"], [None, 5, "x" * 1025]),
    (["entries"], [None, [None], ["f"]]),
    (["key"], ["", KEY.upper(), KEY[:-1], KEY + "\n", None]),
    (["signature"], [None, [], "x" * ((1 << 20) + 1)]),
    (["source"], [None, {}, []]),
    (["source", "size"], [None, -1, 1 << 40]),
    (["more"], [1]),
]


@pytest.mark.parametrize(("path", "values"), CHANGES, ids=lambda v: str(v)[:40])
def test_each_member_of_the_manifest_is_checked(tmp_path, path, values):
    write_bundle(tmp_path / "b", SMALL)
    good = json.dumps(manifest_body(tmp_path / "b"))
    for value in values:
        body = json.loads(good)
        place = body
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        forge(tmp_path / "b", json.dumps(body).encode())
        with pytest.raises(ArgumentError):
            read_bundle(tmp_path / "b")
    forge(tmp_path / "b", good.encode())
    assert read_bundle(tmp_path / "b") == SMALL


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(data=st.data(), value=json_values)
@settings(deadline=None)
def test_a_manifest_with_any_json_in_any_place_is_read_whole_or_refused(places, data, value):
    place = places()
    write_bundle(place, SMALL)
    body = manifest_body(place)
    spot = body
    while True:
        step = data.draw(st.sampled_from(list(spot) if type(spot) is dict else range(len(spot))))
        if type(spot[step]) in {dict, list} and spot[step] and data.draw(st.booleans()):
            spot = spot[step]
        else:
            break
    assume(spot[step] != value)
    spot[step] = value
    forge(place, json.dumps(body).encode())
    try:
        found = read_bundle(place)
    except ArgumentError as error:
        assert error.message  # noqa: PT017 - any other exception fails the test
    else:
        assert set(found.images) <= set(SMALL.images)
        assert found != SMALL
    shutil.rmtree(place)


def test_a_long_manifest_is_not_read(tmp_path, monkeypatch):
    write_bundle(tmp_path / "b", SMALL)
    os.truncate(tmp_path / "b" / "manifest", 1 << 40)
    monkeypatch.setattr(form, "_read_all", lambda *_: pytest.fail("it was read"))
    with pytest.raises(ArgumentError, match=re.escape("manifest has 1099511627776 bytes")):
        read_bundle(tmp_path / "b")


def test_a_short_read_is_continued(tmp_path, monkeypatch):
    write_bundle(tmp_path / "b", SMALL)
    real = os.read
    monkeypatch.setattr(os, "read", lambda fd, size: real(fd, min(size, 7)))
    assert read_bundle(tmp_path / "b") == SMALL


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
    write_bundle(tmp_path / "b", SMALL)
    assert read_bundle(tmp_path / "b") == SMALL
