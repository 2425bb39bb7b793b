"""Chaos on real servers: many requests while everything breaks, a record of what users did and saw, and a checker of it."""
