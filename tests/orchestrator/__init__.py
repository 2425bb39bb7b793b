"""Tests of the orchestrator."""
