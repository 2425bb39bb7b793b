"""End to end: real processes on real servers, through the command line, as a user and an operator see them."""
