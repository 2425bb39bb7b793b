"""The broker implementations: what only one of them does, and what only its own server can show."""
