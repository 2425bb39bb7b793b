"""The fault catalogue: what no other suite breaks is broken here. `docs/faults.md` says of each fault which tests hold it."""
