"""The APIs of other projects on our engine, a module each. Nothing is imported here."""
