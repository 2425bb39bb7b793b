"""Agents: whatever turns a brief into a result. Called by the worker line only."""
