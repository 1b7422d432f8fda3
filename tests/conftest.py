"""What holds for all tests: a cache of their own, shared by workers, and hypothesis settings."""

from __future__ import annotations

import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings

_WORKER = "PYTEST_XDIST_WORKER" in os.environ
_CACHE = os.environ["KERNELMILL_CACHE_DIR"] if _WORKER else tempfile.mkdtemp(prefix="km-tests-")
# Set before anything imports kernelmill: the user's own cache is neither read nor written, and the
# workers and children inherit it.
os.environ["KERNELMILL_CACHE_DIR"] = _CACHE

settings.register_profile(
    "kernelmill",
    deadline=None,  # an example may compile
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile("kernelmill")


def pytest_unconfigure() -> None:
    if not _WORKER:
        shutil.rmtree(_CACHE, ignore_errors=True)
