"""The bench: what the runtime costs beside what a user would take instead, in one interleaved run on servers of its own.

`make bench` runs it. It measures from outside, by process id, and changes nothing in what it measures. It imports the
rest of the house; nothing imports it.
"""
