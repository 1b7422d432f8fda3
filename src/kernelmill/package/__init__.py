"""Kernel projects and packages: manifests, variants, builds, checks. Nothing is imported here."""
