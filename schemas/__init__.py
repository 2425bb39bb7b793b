"""The words: models, enums, errors, ports and the pure functions over them. No I/O, no tasks."""
