"""Crash points on real servers: every durable step of every process is one at which it dies, and nothing is lost."""
