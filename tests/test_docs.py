"""Runs what the documentation shows: Python blocks, doctests, outputs; checks links and names.

A page is one namespace, run in an empty directory. ```python blocks are executed, as doctests when
they hold `>>>`; a ```text output block that follows one is what it prints; others are not run.
"""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import linecache
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import kernelmill as km
from kernelmill.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
LINKED = (*PAGES, ROOT / "CONTRIBUTING.md")
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@dataclass(frozen=True)
class Block:
    info: str
    text: str
    line: int  # of the first line of the text, from 1


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks_of(text):
    found, fence, info, start, body = [], "", "", 0, []
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"(`{3,})(.*)", line)
        if fence:
            if mark and mark[1] == fence and not mark[2].strip():
                found.append(Block(info, "".join(f"{b}\n" for b in body), start))
                fence = ""
            else:
                body.append(line)
        elif mark:
            fence, info, start, body = mark[1], mark[2].strip(), number + 1, []
    assert not fence, "a fence is not closed"
    return found


def anchors_of(text):
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}


def without_places(text):
    """Drop what depends on where a block stands: file names and lines of error texts."""
    text = re.sub(r'File ".*?", line \d+', 'File "…", line …', text)
    return re.sub(r"\bline \d+", "line …", text).strip()


# ----------------------------------------------------------------------------- code


def run_block(block, namespace, name):
    """Run one block as it stands in its file, and return what it printed."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile("\n" * (block.line - 1) + block.text, name, "exec"), namespace)
    return shown.getvalue()


def run_doctest(block, namespace, name, texts):
    """Run one block of examples; `texts` keeps their lines, for blocks that use its functions."""
    label = f"{name}:{block.line}"
    case = doctest.DocTestParser().get_doctest(block.text, namespace, label, name, block.line - 1)
    for index, example in enumerate(case.examples):
        lines = example.source.splitlines(keepends=True)
        file = f"<doctest {label}[{index}]>"
        texts[file] = (len(example.source), None, lines, file)
    report = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    runner.run(case, out=report.write, clear_globs=False)
    namespace.update(case.globs)
    assert not runner.failures, report.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    text, name = page.read_text(), f"<{name_of(page)}>"
    found = blocks_of(text)
    code = [b for b in found if b.info == "python" and ">>>" not in b.text]
    monkeypatch.chdir(tmp_path)
    lines = [""] * (text.count("\n") + 1)
    for block in code:
        lines[block.line - 1 : block.line - 1 + block.text.count("\n")] = block.text.splitlines()
    # Error texts show the user's line, so the page must be found under its name as a file would.
    entry = (len(text), None, [f"{line}\n" for line in lines], name)
    monkeypatch.setattr(linecache, "cache", {**linecache.cache, name: entry})
    namespace, printed = {"__name__": f"page_{page.stem.replace('-', '_')}"}, ""
    for block in found:
        if block.info == "text output":
            assert without_places(printed) == without_places(block.text), f"line {block.line}"
        elif block in code:
            printed = run_block(block, namespace, name)
        elif block.info == "python":
            run_doctest(block, namespace, name, linecache.cache)
    km.set_default_device(None)


def test_every_fence_says_what_it_holds():
    known = {
        "bash", "c", "console", "cpp", "ini", "json", "make", "python", "sh", "text", "text output",
        "toml", "",
    }  # fmt: skip
    for page in PAGES:
        assert {b.info for b in blocks_of(page.read_text())} <= known, name_of(page)
        assert not re.search(r"^[ \t]+```", page.read_text(), re.MULTILINE), name_of(page)


def test_the_checks_of_this_file_fail_when_they_should():
    with pytest.raises(AssertionError, match="Expected:"):
        run_doctest(Block("python", ">>> 1 + 1\n3\n", 1), {}, "<page>", {})
    with pytest.raises(ZeroDivisionError):
        run_block(Block("python", "1 // 0\n", 1), {}, "<page>")
    with pytest.raises(AssertionError, match="not closed"):
        blocks_of("```python\n1\n")
    assert anchors_of("# A `b` c, d\n```sh\n# no title\n```\n") == {"a-b-c-d"}
    assert commands_of("make demo   # all\nkernelmill doctor --json\n") == {
        ("make", "demo"),
        ("kernelmill", "doctor"),
    }


# ----------------------------------------------------------------------------- commands and links


def commands_of(text):
    return set(re.findall(r"^(?:\$ )?(make|kernelmill)(?: +([a-z]\w*))", text, re.MULTILINE))


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_commands_exist(page):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = {"make": targets, "kernelmill": set(main.commands)}
    shells = [b.text for b in blocks_of(page.read_text()) if b.info in {"sh", "bash", "console"}]
    for program, verb in {c for text in shells for c in commands_of(text)}:
        assert verb in known[program], f"`{program} {verb}`"


def test_the_readme_names_the_two_commands():
    shells = [b.text for b in blocks_of(PAGES[0].read_text()) if b.info == "sh"]
    assert {("make", "demo"), ("make", "test")} <= commands_of("".join(shells))


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_links_lead_somewhere(page):
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors_of(target.read_text()), link


def test_every_page_can_be_reached_from_the_readme():
    seen, waiting = set(), [PAGES[0]]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)#\s:]+)", page.read_text())
        waiting += [(page.parent / link).resolve() for link in links]
    assert [name_of(page) for page in PAGES if page not in seen] == []


def test_decisions_are_numbered_without_a_gap_and_listed_by_their_titles():
    place = ROOT / "docs/adr"
    found = sorted(place.glob("[0-9]*.md"))
    assert [int(page.name[:4]) for page in found] == list(range(1, len(found) + 1))
    titles = [page.read_text().partition("\n")[0].removeprefix("# ") for page in found]
    rows = re.findall(
        r"^(\d+\. )\[(.*)\]\((.*)\)$", (place / "README.md").read_text(), re.MULTILINE
    )
    assert [(f"{number}{title}", file) for number, title, file in rows] == [
        (title, page.name) for title, page in zip(titles, found, strict=True)
    ]


# ----------------------------------------------------------------------------- figures

FIGURE = re.compile(r"\d ?(?:[µmn]s|us|[GT]B/s|%)(?!\w)|\d ?x NumPy")


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_figures_stand_in_the_block_that_is_made_of_the_results(page):
    text = page.read_text()
    block = re.compile(r"<!-- benchmarks\b.*?<!-- end of benchmarks -->", re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", block.sub("", text), flags=re.MULTILINE | re.DOTALL)
    assert FIGURE.findall(prose) == []
    assert FIGURE.findall("takes 3 ms, 97 % of 4 GB/s, 12x NumPy") == [
        "3 ms",
        "7 %",
        "4 GB/s",
        "2x NumPy",
    ]


# ----------------------------------------------------------------------------- the architecture

ARCHITECTURE = ROOT / "docs/explanation/architecture.md"
RECORD = """
import sys
import numpy as np, kernelmill as km
x, entered = np.float32([1, 2]), set()
sys.setprofile(lambda frame, event, _: entered.add(frame.f_code.co_filename))
km.transform(x, lambda v: 2 * v)
sys.setprofile(None)
print("\\n".join(entered))
"""


def test_the_call_that_is_followed_goes_through_the_files_that_are_named(tmp_path):
    text = ARCHITECTURE.read_text()
    followed = text.partition("## One call, followed")[2].partition("\n## ")[0]
    links = re.findall(r"\]\((\.\./\.\./src/[^)#]+\.py)\)", followed)
    named = {str((ARCHITECTURE.parent / link).resolve()) for link in links}
    program = tmp_path / "program.py"
    program.write_text(RECORD)
    environment = {**os.environ, "KERNELMILL_CACHE_DIR": str(tmp_path / "cache")}
    run = [sys.executable, program]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    # Only one of the two native paths is taken, and nobody listens to the events.
    optional = {str(ROOT / "src/kernelmill" / name) for name in ("_native_py.py", "events.py")}
    assert len(named) > 20
    assert named - optional <= set(done.stdout.splitlines())


# ----------------------------------------------------------------------------- the reference


API = ROOT / "docs/reference/api.md"


def listed_names():
    """Return what the first column of the reference says of each name."""
    cells = re.findall(r"^\| `km\.([^`|]+)`(.*)\|", API.read_text(), re.MULTILINE)
    rows = [(re.split(r"[(:]", cell)[0].strip(), cell, rest) for cell, rest in cells]
    names = [name for name, _, _ in rows]
    assert len(names) == len(set(names)), "a name is listed twice"
    return {name: (cell, rest) for name, cell, rest in rows}


def spelled(name):
    """Return the signature of a public name without annotations; None where there is none."""
    found = km
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found) or isinstance(found, km.Op) or inspect.isclass(found):
        return None
    parameters = [
        p.replace(annotation=p.empty, default=Named(p.default) if known(p.default) else p.default)
        for p in inspect.signature(found).parameters.values()
    ]
    return f"{name}{inspect.Signature(parameters)}"


def known(default):
    return isinstance(default, (km.Op, np.ufunc))


class Named:
    """A default that is one of our own names, or one of NumPy's."""

    def __init__(self, default):
        ours = isinstance(default, km.Op)
        self.name = f"km.{default.name}" if ours else f"np.{default.__name__}"

    def __repr__(self):
        return self.name


def test_the_reference_lists_every_public_name():
    names = {name.partition(".")[0] for name in listed_names()}
    assert sorted(names) == sorted([*km.__all__, *km._FROM_EXTRAS, *km._MODULES])


@pytest.mark.parametrize("name", sorted(listed_names()))
def test_the_reference_says_how_a_name_is_called(name):
    cell, rest = listed_names()[name]
    expected = spelled(name)
    assert cell == (expected or cell)
    assert "](" in rest, "no link"
    assert len(rest) > 20, "no description"
