"""From a Python function to C++ text: front end, typed IR, printer. Nothing compiles here."""
