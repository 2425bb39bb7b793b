"""The blackboard's implementations: Redis, and memory for one process."""
