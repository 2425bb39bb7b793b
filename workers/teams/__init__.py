"""The teams that Briefline ships. Each folder is one team; nothing here is known to the worker line."""
