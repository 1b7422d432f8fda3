"""Primitives over whole arrays, one file a family; `plan.py` is the one place that launches."""
