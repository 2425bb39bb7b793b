"""The whole system in one event loop, on a virtual clock, with seeded faults; every run is checked and can be run again."""
