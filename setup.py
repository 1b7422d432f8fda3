"""Build of the one extension module; everything else about the package stands in pyproject.toml.

The extension is optional: without a C compiler or Python's headers the installation still works,
and `kernelmill._native_py` does the same in pure Python.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "kernelmill._native",
            sources=[
                "src/kernelmill/_native.c",
                "src/kernelmill/_native_cuda.c",
                "src/kernelmill/_native_cuda_arrays.c",
                "src/kernelmill/_native_plan.c",
                "src/kernelmill/host/blocks.c",
                "src/kernelmill/host/pool.c",
            ],
            depends=[
                *(f"src/kernelmill/host/{name}.h" for name in ("abi", "blocks", "pool")),
                "src/kernelmill/_native.h",
                "src/kernelmill/_native_cuda.h",
            ],
            include_dirs=["src/kernelmill", "src/kernelmill/host"],
            extra_compile_args=["-std=c11", "-O2", "-fvisibility=hidden", "-pthread"],
            extra_link_args=["-pthread"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
