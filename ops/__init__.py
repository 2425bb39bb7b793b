"""The machine room, the only floor that knows the outside: servers, settings, wiring, the command line."""
