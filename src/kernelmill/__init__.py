"""kernelmill: write, run, build, version, lock and ship compute kernels from Python."""
