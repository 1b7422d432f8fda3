"""Builds variants: compiles what changed, links, writes the directory, remembers what made it.

`recipe.py` says how, `commands.py` runs it, `objects.py` keeps objects, `artifact.py` writes.
"""

from __future__ import annotations

import json
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kernelmill.cache.key import digest
from kernelmill.cache.lock import Workspace, hold, sweep
from kernelmill.config import get_config
from kernelmill.errors import PackageError
from kernelmill.package.archs import sorted_archs
from kernelmill.package.artifact import Artifact, swap, write_artifact
from kernelmill.package.build_cache import build_cache
from kernelmill.package.commands import Cancelled, Commands
from kernelmill.package.contents import contents_of, identifier_of
from kernelmill.package.digest import file_hash, hash_variant
from kernelmill.package.frameworks import kind_of
from kernelmill.package.metadata import FILE as METADATA
from kernelmill.package.objects import Compiled, Objects, Unit, copy_object
from kernelmill.package.project import require_sound
from kernelmill.package.recipe import machine, recipe_of
from kernelmill.package.source_state import source_state
from kernelmill.package.stubs import write_stubs
from kernelmill.package.taken_along import taken_along
from kernelmill.package.toolchain_lock import ToolchainLock, facts_of
from kernelmill.package.unlocked import say_unlocked
from kernelmill.package.whole_file import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kernelmill.package.contents import Contents
    from kernelmill.package.matrix import Entry, Project
    from kernelmill.package.recipe import Recipe
    from kernelmill.package.source_state import SourceState
    from kernelmill.package.toolchain_lock import Drift, Policy

__all__ = ["BUILD", "Built", "Options", "build"]

_T = TypeVar("_T")

BUILD: Final = "build"
OWN: Final = "build/.kernelmill"
_WAIT: Final = 3600.0
_STEP: Final = 0.5  # seconds after which somebody who waits looks whether to go on
_MOST_VARIANTS: Final = 64
_SCHEMA: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to build.

    Parameters
    ----------
    jobs
        How many compilers run at once.
    archs
        Compute capabilities in place of those that the toolkit serves.
    policy
        What to do about a toolchain that is not the locked one.
    unique
        What ends the names of modules and operators, in place of the state of the sources.
    out
        Where variants go: `build` in the project by default.
    use_cache
        Whether objects are taken from the cache and kept there.
    precompiled
        Whether torch's headers are compiled once and read by all bindings; for edits.
    """

    jobs: int = 1
    archs: tuple[str, ...] | None = None
    policy: Policy = "record"
    unique: str | None = None
    out: Path | None = None
    use_cache: bool = True
    precompiled: bool = False


@dataclass(frozen=True, slots=True)
class Built:
    """A variant that was built or found unchanged.

    `compiled` and `reused` count sources; `log` is the file with every command and what it printed.
    """

    variant: str
    path: Path
    identifier: str
    unchanged: bool
    compiled: int
    reused: int
    seconds: float
    bytes: int
    log: Path
    drift: tuple[Drift, ...] = ()
    warnings: str = ""


@dataclass(slots=True)
class _Run:
    """What the variants of one call share: `flights` are the objects that are being made."""

    project: Project
    options: Options
    state: SourceState
    lock: ToolchainLock
    units: ThreadPoolExecutor
    kept: Path
    cancel: Event = field(default_factory=Event)
    flights: dict[str, Future[Compiled]] = field(default_factory=dict)
    taking: Lock = field(default_factory=Lock)
    tell: Callable[[str, str], None] = lambda _variant, _step: None


def build(
    project: Project,
    entries: Sequence[Entry],
    options: Options | None = None,
    *,
    tell: Callable[[str, str], None] | None = None,
) -> list[Built]:
    """Build variants of a project, several at a time; return them in the order of `entries`.

    Parameters
    ----------
    project, entries
        The project, and which of its variants.
    options
        How; one compiler per processor by default.
    tell
        Called with a variant and what happens to it: "started", "SOURCE", "linked", "done".

    Raises
    ------
    CompileError
        A compiler refuses a source; `log` is its output. The variants that were done stay.
    KernelmillError
        A variant cannot be built.
    OSError
        A disk is full, a directory not writable.

    Examples
    --------
    See `docs/how-to/build-kernels.md`.
    """
    options = options or Options(jobs=get_config().threads())
    sorted_archs(options.archs or ())  # refuses what is no capability, whatever is built
    state = source_state(project.root)
    for file, manifest in dict.fromkeys((entry.file, entry.manifest) for entry in entries):
        require_sound(project.root, manifest, file)
    own = project.root / OWN
    own.mkdir(parents=True, exist_ok=True)
    sweep(own, ".cache-")
    with (
        Workspace(own, ".cache-") as cache,
        ThreadPoolExecutor(options.jobs) as units,
        # All variants wait at once for objects, so that a processor never waits for a variant.
        ThreadPoolExecutor(_MOST_VARIANTS) as pool,
    ):
        kept = build_cache() if options.use_cache else cache.path
        shared = _Run(project, options, state, ToolchainLock.read(project.root), units, kept)
        if tell is not None:
            shared.tell = tell
        # Those that take longest begin first.
        order = sorted(entries, key=lambda entry: kind_of(entry.variant) != "classic")
        futures = {entry.variant: pool.submit(_build_one, shared, entry) for entry in order}
        try:
            return _collect([futures[entry.variant] for entry in entries])
        except BaseException:
            shared.cancel.set()
            for future in futures.values():
                future.cancel()
            raise


def _collect(futures: Sequence[Future[_T]]) -> list[_T]:
    """Wait for all; the first error ends the wait, whichever it is of."""
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
    return [future.result() for future in futures]


def _build_one(shared: _Run, entry: Entry) -> Built:
    """Build one variant, under its lock: a second build of the same waits for the first."""
    name = str(entry.variant)
    locks = shared.project.root / OWN / "locks"
    locks.mkdir(exist_ok=True)
    until = monotonic() + _WAIT
    while monotonic() < until:
        if shared.cancel.is_set():
            raise Cancelled
        asked = monotonic()
        with hold(locks / f"{name}.lock", _STEP) as held:
            # Some file systems have no locks, which they say at once.
            unlocked = not held and monotonic() - asked < _STEP / 2
            if unlocked:
                say_unlocked(locks, "two builds of a variant at once may end with an error")
            if held or unlocked:
                return _build_alone(shared, entry)
    raise PackageError(f"another build of {name} has been running for {_WAIT:g} s")


def _build_alone(shared: _Run, entry: Entry) -> Built:
    name, own = str(entry.variant), shared.project.root / OWN
    shared.tell(name, "started")
    start = monotonic()
    sweep(own, ".work-")
    with Workspace(own, ".work-") as work:
        built = _Maker(shared, entry, work.path, start).make()
    shared.tell(name, "done")
    return built


@dataclass(slots=True)
class _Maker:
    """Makes one variant in a temporary directory."""

    shared: _Run
    entry: Entry
    work: Path
    start: float

    @property
    def name(self) -> str:
        return str(self.entry.variant)

    @property
    def root(self) -> Path:
        return self.shared.project.root

    @property
    def place(self) -> Path:
        return (self.shared.options.out or self.root / BUILD) / self.name

    def make(self) -> Built:
        """Compile what changed; where nothing did and the directory is as it was, leave it."""
        shared, entry = self.shared, self.entry
        unique = shared.options.unique or shared.state.unique
        identifier = identifier_of(entry.manifest, entry.variant.backend.name, unique)
        recipe = None
        drift: tuple[Drift, ...] = ()
        facts: dict[str, Any] = {}
        if kind_of(entry.variant) != "noarch":
            recipe = recipe_of(shared.project, entry, identifier, archs=shared.options.archs)
            facts = facts_of(recipe)
            drift = shared.lock.check(facts, shared.options.policy)
        commands = self._commands(recipe)
        try:
            objects = self._objects(recipe, commands) if recipe else []
            contents = contents_of(
                shared.project, entry, identifier, shared.state, recipe=recipe, drift=drift
            )
            key = self._key(recipe, objects, contents)
            unchanged = shared.options.out is None and self._is_there(key)
            if not unchanged:
                self._write(recipe, objects, contents, commands)
                if shared.options.out is None:
                    self._remember(key)
        finally:
            log = self._write_log(commands)
        if facts:
            with hold(self.root / OWN / "toolchain.lock", _WAIT):
                ToolchainLock.read(self.root).write(facts, shared.options.policy)
        own = objects[: len(recipe.units)] if recipe else []
        how = [one.how for one in own]
        return Built(
            variant=self.name,
            path=self.place,
            identifier=identifier,
            unchanged=unchanged,
            compiled=how.count("compiled"),
            reused=len(how) - how.count("compiled"),
            seconds=monotonic() - self.start,
            bytes=sum(f.stat().st_size for f in self.place.rglob("*") if f.is_file()),
            log=log,
            drift=drift,
            warnings="".join(self._said(recipe, own)),
        )

    def _commands(self, recipe: Recipe | None) -> Commands:
        options = self.shared.options
        device = sum(unit.cuda is not None for unit in recipe.units) if recipe else 0
        return Commands(
            self.root,
            self.work,
            # Each takes memory for an architecture: together they are as many as asked for.
            max(1, options.jobs // max(1, device)),
            self.shared.cancel,
            precompiled=options.precompiled,
        )

    def _said(self, recipe: Recipe | None, own: Sequence[Compiled]) -> Iterator[str]:
        """Yield what stands in for something else, and what compilers said."""
        logs = [one.log for one in own if one.how == "compiled"]
        for note in recipe.notes if recipe and logs else ():
            yield f"note: {self.name}: {note}\n"
        yield from logs

    # ------------------------------------------------------------------------- objects

    def _objects(self, recipe: Recipe, commands: Commands) -> list[Compiled]:
        """Return the objects of all units, in order; they are compiled beside other variants'."""
        store = self._store(recipe, commands)
        units = [*recipe.units, *recipe.pins()]
        # Device code takes longest, and compiles on several processors by itself.
        first = sorted(range(len(units)), key=lambda index: units[index].cuda is None)
        futures = {index: self._submit(store, units[index]) for index in first}
        try:
            made = _collect([futures[index][0] for index in range(len(units))])
        finally:
            if store.stored:
                store.trim(get_config().cache_size)
        return [
            one if futures[index][1] else replace(one, how="direct")
            for index, one in enumerate(made)
        ]

    def _submit(self, store: Objects, unit: Unit) -> tuple[Future[Compiled], bool]:
        """Return the future object, and whether it is made for this variant first."""
        slot = store.slot(unit)
        with self.shared.taking:
            known = self.shared.flights.get(slot)
            if known is not None:
                return known, False
            made = self.shared.units.submit(self._compile, store, unit)
            self.shared.flights[slot] = made
            return made, True

    def _compile(self, store: Objects, unit: Unit) -> Compiled:
        if self.shared.cancel.is_set():
            raise Cancelled
        compiled = store.get(unit, self.work)
        self.shared.tell(self.name, unit.source)
        return compiled

    def _store(self, recipe: Recipe, commands: Commands) -> Objects:
        return Objects(
            root=self.shared.kept / "objects",
            project=self.root,
            names=recipe.names,
            identity=recipe.identity,
            compile_unit=commands.compile_unit,
            preprocess=commands.preprocess,
        )

    # ------------------------------------------------------------------------- the directory

    def _key(self, recipe: Recipe | None, objects: Sequence[Compiled], contents: Contents) -> str:
        """Return the digest of everything that the directory is made from."""
        return digest(
            schema=_SCHEMA,
            objects=[one.sha256 for one in objects],
            identity=recipe.identity if recipe else "",
            libraries=recipe.binding.libraries if recipe else (),
            metadata=contents.metadata.text(),
            texts=contents.texts,
            copies={name: file_hash(path) for name, path in contents.copies.items()},
        )

    @property
    def _state(self) -> Path:
        return self.root / OWN / "state" / f"{self.name}.json"

    def _is_there(self, key: str) -> bool:
        """Say whether the directory is the one that was made from the very same things."""
        try:
            known = json.loads(self._state.read_bytes())
            metadata = (self.place / METADATA).read_bytes()
        except (OSError, ValueError):
            return False
        if known != {**known, "key": key, "metadata": sha256(metadata).hexdigest()}:
            return False
        return bool(hash_variant(self.place).root() == known.get("root"))

    def _remember(self, key: str) -> None:
        metadata = (self.place / METADATA).read_bytes()
        root = hash_variant(self.place).root()
        facts = {"key": key, "metadata": sha256(metadata).hexdigest(), "root": root}
        self._state.parent.mkdir(exist_ok=True)
        replace_file(self._state, json.dumps(facts))

    def _write(
        self,
        recipe: Recipe | None,
        objects: Sequence[Compiled],
        contents: Contents,
        commands: Commands,
    ) -> None:
        copies = dict(contents.copies)
        if recipe is not None:
            copies[recipe.library] = self._link(recipe, objects, commands)
            self.shared.tell(self.name, "linked")
        made = self.work / "made"
        write_artifact(Artifact(contents.metadata, contents.texts, copies), made)
        if self.shared.cancel.is_set():
            raise Cancelled
        swap(made, self.place, self.work / "before")

    def _link(self, recipe: Recipe, objects: Sequence[Compiled], commands: Commands) -> Path:
        store = self._store(recipe, commands)
        paths = []
        for index, one in enumerate(objects):
            paths.append(str(self.work / f"link-{index}.o"))
            copy_object(store.path(one.sha256), Path(paths[-1]))
        own = paths[: len(recipe.units)]
        more = taken_along([Path(path) for path in own], recipe.host, self.work, commands.run)
        pins = [*paths[len(own) :], *more]
        if pins:
            archive = str(self.work / "libpins.a")
            commands.run(["ar", "rcsD", archive, *pins], "the pins were not archived:")
            paths = [*own, archive]
        stubs = write_stubs(self.work / "stubs", recipe.binding.libraries, machine())
        out = self.work / recipe.library
        commands.run(recipe.link_command(paths, stubs, out), f"{recipe.library} was not linked:")
        return out

    def _write_log(self, commands: Commands) -> Path:
        """Write every command with its time and output; lies outside of what is published."""
        log = self.root / OWN / "logs" / f"{self.name}.log"
        log.parent.mkdir(exist_ok=True)
        if commands.lines or not log.exists():
            replace_file(log, "\n".join(commands.lines) + "\n")
        return log
