"""The blackboard on servers of the tests' own."""
