"""add-one: never built."""
