# The door: every target makes the virtual environment it needs. Only Python >= 3.11 and a C++ compiler are assumed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= gpu-out
WHEELS ?= wheels

.PHONY: demo test lint check full fuzz bench gpu wheels docs clean in-place

demo: $(VENV)/.demo
	$(BIN)/kernelmill demo

test: $(VENV)/.dev
	$(BIN)/pytest -n 2 -m "not slow and not cuda"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint
	$(BIN)/pytest -q -n 2 -m "not slow" tests/test_tiny.py tests/null

full: $(VENV)/.dev
	KERNELMILL_EVERY_CHIP=1 $(BIN)/pytest -n 2 -m "not cuda" --hypothesis-profile=random

fuzz: $(VENV)/.dev
	KERNELMILL_FUZZ_PROGRAMS=20000 $(BIN)/pytest -n 2 --hypothesis-profile=random \
		tests/cpu/test_fuzz.py tests/emulator/test_fuzz.py

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py

# On a machine without network, `make gpu VENV=` takes the packages that PYTHON has; see docs/how-to/measure-on-a-gpu.md.
gpu: $(if $(VENV),$(VENV)/.gpu,in-place)
	$(if $(VENV),$(BIN)/python,PYTHONPATH=src:$$PYTHONPATH $(PYTHON)) benchmarks/gpu.py $(FAMILY) --out $(OUT) $(if $(TOTAL),--total $(TOTAL)) $(if $(COMMIT),--commit $(COMMIT))

# What such a machine lacks, for its Python and platform.
wheels:
	$(PYTHON) tools/wheels.py $(WHEELS) $(if $(TARGET),--python $(TARGET))

docs: $(VENV)/.dev
	$(BIN)/pytest -q tests/test_docs.py tests/test_examples.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info demo-output

# One stamp an installation; a change of pyproject.toml or of the extension installs again.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"

NATIVE := setup.py $(wildcard src/kernelmill/*.c) $(wildcard src/kernelmill/host/*.c)

# Where NVIDIA's driver is, the demo runs on the GPU: with the extra of CUDA 13 from driver 580 on, else that of CUDA 12.
DRIVER = $(shell nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | sed -n '1s/^\([0-9]*\)\..*/\1/p')
EXTRAS = demo$(if $(DRIVER),$(shell [ $(DRIVER) -ge 580 ] && echo ,cuda13 || echo ,cuda12))

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml $(NATIVE)
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml $(NATIVE)
	$(BIN)/python -m pip install --quiet --editable '.[demo]' --group test --group check
	touch $@

$(VENV)/.gpu: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --group gpu
	touch $@

in-place: $(NATIVE)
	$(PYTHON) setup.py --quiet build_ext --inplace

$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --group bench
	touch $@
