"""Promises, one folder per floor, plus contract, simulation and end-to-end suites."""
