"""From a Python function and argument types to IR. The table of values is not here.

`docs/reference/operator-syntax.md` lists what is accepted and refused; what each operation gives is
`docs/reference/operator-language.md`.

values       what a Python expression is to the translator: IR, an object, an inlined function
scope        names of the surrounding Python: cells, globals, attributes; which are captured
refusals     what is refused, and what to write instead
frame        the state of one function being translated
callables    the table of known callables: math, NumPy, builtins, operator
calls        how each kind of Python callable is called
expressions  one function an expression node
statements   one function a statement node; branches
loops        loops and their variables
program      a whole program: functions by argument types, captures, the entry
"""

from kernelmill.compiler.frontend.program import translate
from kernelmill.compiler.frontend.scope import Baked, CapturedScalar, captured_type
from kernelmill.compiler.frontend.translation import Translation

__all__ = ["Baked", "CapturedScalar", "Translation", "captured_type", "translate"]
