"""A kernel of Python sources, published to a directory, locked by a range, and loaded verified."""

import json
import tempfile
from pathlib import Path

from kernelmill import hub
from kernelmill.config import override
from kernelmill.errors import LockError
from kernelmill.package.dependencies import read_dependencies
from kernelmill.package.digest import hash_variant
from kernelmill.package.lock_make import make_lock, write_lock
from kernelmill.package.push import plan_push, push
from kernelmill.package.registry_open import open_registry


def publish(home: Path, version: str) -> None:
    """Do what `kernelmill build` and `kernelmill push` do, for a kernel of one function."""
    variant = home / f"twice-{version}" / "build" / "torch-universal"
    variant.mkdir(parents=True)
    (variant / "__init__.py").write_text(
        f"VERSION = {version!r}\n\ndef twice(x):\n    return 2 * x\n"
    )
    facts = {
        "name": "twice", "id": f"_twice_{version.replace('.', '')}", "version": 1,
        "license": "Apache-2.0", "python-depends": [], "backend": {"type": "cpu"},
        "kernelmill": {"version": version}, "digest": hash_variant(variant).to_json(),
    }  # fmt: skip
    (variant / "metadata.json").write_text(json.dumps(facts))
    registry = open_registry(str(home / "registry"))
    push(plan_push(variant.parents[1], "acme/twice", registry), registry)


def lock_and_load() -> tuple[str, int, str]:
    """Return the version that is loaded, what it computes, and what an edited lock is told."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        for version in ("1.0.0", "1.1.0", "1.2.0"):
            publish(home, version)
        (home / "pyproject.toml").write_text(
            f'[[tool.kernelmill.registry]]\nname = "ours"\nurl = "{home / "registry"}"\n'
            'trust = "all"\n[tool.kernelmill.dependencies]\n"acme/twice" = ">=1.1,<1.2"\n'
        )
        # `kernelmill lock`
        made = make_lock(open_registry(str(home / "registry")), read_dependencies(home))
        ours, _ = write_lock(home, made)
        with override(hub_cache=home / "cache", cache_dir=home / "compiled"):
            kernel = hub.get_locked_kernel("acme/twice", lockfile=ours)
            ours.write_text(ours.read_text().replace('"1.1.0"', '"1.2.0"'))
            try:
                hub.load_kernel("acme/twice", lockfile=ours)
            except LockError as error:
                said = error.message.partition(": ")[2].partition(":")[0]
        return kernel.VERSION, kernel.twice(21), said


version, answer, refusal = lock_and_load()
print(f"version {version} says {answer}; an edited lock: {refusal}")
assert (version, answer) == ("1.1.0", 42)
assert refusal == "kernels[0] (acme/twice) was changed after it was written"
