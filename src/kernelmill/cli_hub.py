"""The verbs of registries: serve, push, download, sync, verify, info, trust, key.

Like every verb they print what `kernelmill.package` finds out, and import it when they run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kernelmill.cli_parts import JSON, Verb, print_json, project_option, size_text, table_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernelmill.package.inspect_variant import Facts, Verdict
    from kernelmill.package.obtain import Located, Shelves

__all__ = ["BACKEND", "REGISTRY", "VERBS", "shelves_for"]

REGISTRY: Final[Callable[[Any], Any]] = click.option(
    "--registry",
    default="",
    metavar="NAME|ADDRESS",
    help="A configured registry, a directory or an address; else the one for the organization.",
)
BACKEND: Final[Callable[[Any], Any]] = click.option(
    "--backend", default=None, metavar="NAME", help="cpu leaves the accelerator out."
)
OFFLINE: Final[Callable[[Any], Any]] = click.option(
    "--offline", is_flag=True, help="Ask no registry; say what the cache lacks."
)
VERSION: Final[Callable[[Any], Any]] = click.option(
    "--version", "wanted", default=None, metavar="RANGE", help='An integer or a range: ">=1.1,<2".'
)
REVISION: Final[Callable[[Any], Any]] = click.option(
    "--revision", default=None, metavar="NAME", help="A commit, a tag or a branch."
)


# ----------------------------------------------------------------------------- kernelmill serve


@click.command(cls=Verb)
@click.argument("directory", type=click.Path(file_okay=False))
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8350,
    show_default=True,
    help="0 is any free one.",
)
@click.option("--tokens", type=click.Path(dir_okay=False, exists=True), help="Who may do what.")
@click.option("--writable", is_flag=True, help="Let all who reach it write; loopback only.")
@click.option("--trust", "trusted", multiple=True, metavar="ORG", help="Vouch for a publisher.")
def serve(
    *,
    directory: str,
    host: str,
    port: int,
    tokens: str | None,
    writable: bool,
    trusted: tuple[str, ...],
) -> None:
    """Offer a directory of kernels to everything that speaks to the Hub, through HF_ENDPOINT.

    A file of tokens has lines `NAME read|write TOKEN`. Without one, everything is shown to
    everybody and nothing can be written, unless --writable.
    """
    from kernelmill.errors import ArgumentError
    from kernelmill.package.registry_files import FilesRegistry
    from kernelmill.package.serve import Access, Server, read_tokens
    from kernelmill.package.shelf import open_shelf

    if writable and host not in {"127.0.0.1", "localhost", "::1"}:
        raise ArgumentError(
            f"--writable lets everybody write, and {host} can be reached from other machines",
            hint="--tokens FILE says who may write",
        )
    if not (writable or tokens or Path(directory).is_dir()):
        raise ArgumentError(
            f"there is no directory {Path(directory).absolute()}, and nobody may write",
            hint="--writable, or --tokens FILE, lets it be filled by `kernelmill push`",
        )
    users = read_tokens(Path(tokens)) if tokens else ()
    access = Access(users, open_writes=writable, trusted=frozenset(trusted))
    server = Server(FilesRegistry(open_shelf(directory)), access, host=host, port=port)
    click.echo(f"export HF_ENDPOINT={server.endpoint}")
    click.echo(f"serving {Path(directory).absolute()}; Ctrl-C stops it", err=True)
    try:
        server.run()
    except KeyboardInterrupt:
        click.echo("stopped", err=True)


# ----------------------------------------------------------------------------- kernelmill push


@click.command(cls=Verb)
@click.argument("repo_id", metavar="ORG/NAME")
@project_option("build.toml")
@REGISTRY
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only this one.")
@click.option("--key", "keys", multiple=True, type=click.Path(dir_okay=False, exists=True))
@click.option("--private", is_flag=True, help="Make the repository private, if it is made.")
@click.option("--prune", is_flag=True, help="Delete variants that were not built here.")
@click.option("--force", is_flag=True, help="Replace a published version, or go back to one.")
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@JSON
def push(
    *,
    repo_id: str,
    project: str,
    registry: str,
    variants: tuple[str, ...],
    keys: tuple[str, ...],
    private: bool,
    prune: bool,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Publish what was built to the branch of its major version.

    Only files that differ are sent. A push that broke off is made again with the same command. With
    --key, each variant's metadata is signed.
    """
    from kernelmill.package.push import plan_push
    from kernelmill.package.push import push as carry_out

    where = shelves_for(registry, None, offline=False)
    target = where.open(where.settings(repo_id))
    plan = plan_push(
        Path(project),
        repo_id,
        target,
        variants=variants,
        keys=[Path(key) for key in keys],
        prune=prune,
        force=force,
    )
    if not as_json:
        for line in plan.lines():
            click.echo(line, err=not dry_run)
    done = None if dry_run else carry_out(plan, target, private=private)
    if as_json:
        changes = [{"path": c.path, "deleted": not hasattr(c, "source")} for c in plan.changes]
        print_json(
            {
                "repo_id": repo_id,
                "registry": target.url,
                "branch": plan.branch,
                "version": str(plan.version),
                "variants": plan.variants,
                "changes": changes,
                "unchanged": plan.unchanged,
                "bytes": plan.size,
                "commit": done.commit if done else None,
            }
        )
    elif done is not None:
        state = "now at" if done.moved else "already at"
        click.echo(f"{repo_id} {done.version}: {done.branch} is {state} {done.commit}")


# ----------------------------------------------------------------------------- kernelmill download


@click.command(cls=Verb)
@click.argument("repo_id", metavar="ORG/NAME", required=False)
@VERSION
@REVISION
@REGISTRY
@BACKEND
@click.option("--lockfile", type=click.Path(dir_okay=False), help="Else the nearest above here.")
@click.option("--all-variants", is_flag=True, help="Also those for other systems.")
@OFFLINE
@JSON
def download(
    *,
    repo_id: str | None,
    wanted: str | None,
    revision: str | None,
    registry: str,
    backend: str | None,
    lockfile: str | None,
    all_variants: bool,
    offline: bool,
    as_json: bool,
) -> None:
    """Download kernels into the cache and verify them; nothing is imported.

    With ORG/NAME, that kernel; without, all that the lock names (as `sync` does). Prints where they
    are.
    """
    if repo_id is None:
        _sync(lockfile, backend, all_variants=all_variants, offline=offline, as_json=as_json)
        return
    from kernelmill.errors import ArgumentError

    if wanted is None and revision is None:
        raise ArgumentError(
            f"which version of {repo_id} is wanted is not said",
            hint='--version 1 is the head of the branch v1, --version ">=1.1,<2" a range; '
            "`kernelmill versions` shows what there is",
        )
    from kernelmill.package.versions import variant_files
    from kernelmill.package.wanted import Wanted

    with _Bar(quiet=as_json) as progress:
        shelves = shelves_for(registry, backend, offline=offline)
        shelves.progress = progress
        located = shelves.locate(repo_id, Wanted.of(wanted, revision))
        names = variant_files(shelves.listing(located)) if all_variants else ()
        shelves.download(located, variants=names)
        found, verify_all = shelves.candidate(located)
        verify_all(found)
    if as_json:
        record = {"repo_id": repo_id, "commit": located.commit, "variant": located.variant}
        print_json(record | {"path": found.directory})
    else:
        click.echo(found.directory)


@click.command(cls=Verb)
@BACKEND
@click.option("--lockfile", type=click.Path(dir_okay=False), help="Else the nearest above here.")
@click.option("--all-variants", is_flag=True, help="Also those for other systems.")
@OFFLINE
@JSON
def sync(
    *, backend: str | None, lockfile: str | None, all_variants: bool, offline: bool, as_json: bool
) -> None:
    """Fill the cache with what the lock names, and compare every file with it.

    With --offline nothing is downloaded, only compared.
    """
    _sync(lockfile, backend, all_variants=all_variants, offline=offline, as_json=as_json)


def _sync(
    lockfile: str | None, backend: str | None, *, all_variants: bool, offline: bool, as_json: bool
) -> None:
    from kernelmill.package.lock_find import Caller, find_lock
    from kernelmill.package.lock_load import sync as carry_out
    from kernelmill.package.obtain import Shelves
    from kernelmill.package.policy import read_policy

    found = find_lock(Caller("__main__", None), Path(lockfile) if lockfile else None)
    shelves = Shelves(policy=read_policy(found.project), backend=backend)
    shelves.offline = offline or shelves.offline
    with _Bar(quiet=as_json) as progress:
        done = carry_out(shelves, found.lock, all_variants=all_variants, progress=progress)
    if as_json:
        print_json(done)
        return
    for one in done:
        click.echo(f"{one.slot} {one.version}  {', '.join(one.variants)}  {one.directory}")
    total = sum(one.size for one in done)
    click.echo(f"{len(done)} kernels, {size_text(total)}, as {found.place} names them", err=True)


# ----------------------------------------------------------------------------- kernelmill verify


def _located(shelves: Shelves, what: str, wanted: str | None, revision: str | None) -> Located:
    """Return the version that is asked for; else the one that is locked here, else the newest."""
    from kernelmill.package.lock import FILE, read_lock
    from kernelmill.package.root import project_root
    from kernelmill.package.wanted import Wanted

    place = project_root(FILE) / FILE
    if wanted is None and revision is None and place.is_file():
        lock = read_lock(place)
        if any(what in {kernel.repo_id, kernel.slot} for kernel in lock.kernels.values()):
            return shelves.locate_locked(lock.find(what))
    return shelves.locate(what, Wanted.of(wanted, revision, needed=False))


@click.command(cls=Verb)
@click.argument("what", metavar="ORG/NAME|DIRECTORY")
@VERSION
@REVISION
@REGISTRY
@BACKEND
@click.option("--all-variants", is_flag=True, help="Also those for other systems.")
@click.option("--repair", is_flag=True, help="Download again what is not as promised.")
@click.option(
    "--import", "trial", is_flag=True, help="Import it in another process, with a time limit."
)
@click.option("--timeout", default=60.0, show_default=True, help="Seconds for --import.")
@OFFLINE
@JSON
def verify(
    *,
    what: str,
    wanted: str | None,
    revision: str | None,
    registry: str,
    backend: str | None,
    all_variants: bool,
    repair: bool,
    trial: bool,
    timeout: float,
    offline: bool,
    as_json: bool,
) -> None:
    """Check commit, digest and signatures of a kernel, as far as each is there; import nothing.

    Without a version it is the one that is locked here, else the newest. Exits with status 1 when
    something does not hold, or the policy asks for more than holds.
    """
    from kernelmill.errors import IntegrityError
    from kernelmill.package.inspect_variant import verify_directory, verify_published

    if Path(what).is_dir():
        verdicts = verify_directory(Path(what), every=all_variants, backend=backend)
    else:
        shelves = shelves_for(registry, backend, offline=offline)
        located = _located(shelves, what, wanted, revision)
        verdicts = verify_published(shelves, located, every=all_variants, repair=repair)
    if trial:
        from kernelmill.package.trial import try_import

        verdicts = [one.tried(try_import(one.directory, timeout=timeout)) for one in verdicts]
    if as_json:
        print_json(verdicts)
    else:
        for verdict in verdicts:
            for line in _verdict_lines(verdict):
                click.echo(line)
    failed = [v.variant for v in verdicts if not v.passed]
    if failed:
        raise IntegrityError(f"{len(failed)} of {len(verdicts)} variants fail: {', '.join(failed)}")


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    yield f"{verdict.variant}  {'holds' if verdict.passed else 'FAILS'}"
    for check in verdict.checks:
        mark = {True: "yes", False: "NO", None: "-"}[check.holds]
        yield f"  {check.name:10}  {mark:3}  {check.text}".rstrip()


# ----------------------------------------------------------------------------- kernelmill info


@click.command(cls=Verb)
@click.argument("what", metavar="ORG/NAME|DIRECTORY")
@VERSION
@REVISION
@REGISTRY
@BACKEND
@OFFLINE
@JSON
def info(
    *,
    what: str,
    wanted: str | None,
    revision: str | None,
    registry: str,
    backend: str | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Show what a kernel says of itself: version, dependencies, provenance, who signed.

    Without a version it is the one that is locked here, else the newest.
    """
    from kernelmill.package.inspect_variant import facts_of_directory, facts_of_published

    if Path(what).is_dir():
        facts = facts_of_directory(Path(what), backend=backend)
    else:
        shelves = shelves_for(registry, backend, offline=offline)
        located = _located(shelves, what, wanted, revision)
        facts = facts_of_published(shelves, located)
    if as_json:
        print_json(facts)
    else:
        for line in _fact_lines(facts):
            click.echo(line)


def _fact_lines(facts: Facts) -> Iterator[str]:
    yield from table_lines([row for row in facts.rows() if row[1]])


# ----------------------------------------------------------------------------- kernelmill trust


@click.command(cls=Verb)
@click.argument("publisher", metavar="ORG[/NAME]")
@click.option("--level", type=click.IntRange(0, 3), default=1, show_default=True)
@click.option("--registry", default="*", show_default=True, metavar="NAME")
@click.option("--key", "keys", multiple=True, metavar="ed25519:...", help="Who may sign.")
@click.option("--identity", default="", help="Who may sign through sigstore, with --issuer.")
@click.option("--issuer", default="", help="Who vouched for that identity.")
@click.option("--project", type=click.Path(file_okay=False, exists=True), default=None)
def trust(
    *,
    publisher: str,
    level: int,
    registry: str,
    keys: tuple[str, ...],
    identity: str,
    issuer: str,
    project: str | None,
) -> None:
    """Allow the kernels of a publisher, and say what they must prove.

    Level 1: the bytes are those of the commit. 2: and the digest in metadata.json holds. 3: and
    metadata.json is signed by one of --key or --identity. 0 refuses them. The rule is written to
    the user's hub.toml, or with --project to that project's pyproject.toml.
    """
    from kernelmill.package.policy import Identity, Rule
    from kernelmill.package.policy_write import add_rule

    identities = (Identity(identity, issuer),) if identity or issuer else ()
    rule = Rule(publisher, level, registry, keys, identities)
    place = add_rule(rule, Path(project) if project else None)
    click.echo(f"{place} now has a rule for {publisher}: level {level}")


@click.command(cls=Verb)
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--show", is_flag=True, help="Print the public key of a file that is there.")
def key(*, file: str, show: bool) -> None:
    """Make a private key to sign kernels with; print the public one, for `kernelmill trust`."""
    from kernelmill.package.signature import make_key, public_key

    click.echo(public_key(Path(file)) if show else make_key(Path(file)))


# ----------------------------------------------------------------------------- what verbs share


def shelves_for(
    registry: str, backend: str | None, *, offline: bool, project: Path | None = None
) -> Shelves:
    """Return what finds kernels, with the policy of the user and of a project, else of this one."""
    from dataclasses import replace

    from kernelmill.package.obtain import Shelves
    from kernelmill.package.policy import RegistrySettings, read_policy
    from kernelmill.package.root import project_root

    policy = read_policy(project or project_root("pyproject.toml"))
    if "/" in registry or registry in {".", ".."}:
        policy = replace(
            policy, registries=(RegistrySettings("given", registry), *policy.registries)
        )
        registry = "given"
    shelves = Shelves(policy=policy, registry=registry, backend=backend)
    shelves.offline = offline or shelves.offline
    return shelves


class _Bar:
    """A progress bar of bytes on stderr; none where stderr is no terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Any = None  # Any: click's bar, whose type has a parameter
        self._done = 0

    def __enter__(self) -> Callable[[int, int], None]:
        """Return what is told of progress."""
        return self._tell

    def __exit__(self, *_: object) -> None:
        """Leave the line."""
        if self._bar is not None:
            self._bar.render_finish()

    def _tell(self, done: int, total: int) -> None:
        if self._quiet or not sys.stderr.isatty():
            return
        if self._bar is None:
            self._bar = click.progressbar(
                length=total, label=f"downloading {size_text(total)}", file=sys.stderr
            )
            self._bar.render_progress()
        self._bar.update(done - self._done)
        self._done = done


VERBS: Final[tuple[click.Command, ...]] = (
    serve,
    push,
    download,
    sync,
    verify,
    info,
    trust,
    key,
)
