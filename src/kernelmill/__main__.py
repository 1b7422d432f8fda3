"""`python -m kernelmill`: the command line, which is in `cli.py`."""

from kernelmill.cli import main

main(prog_name="kernelmill")
