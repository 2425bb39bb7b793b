"""`python -m ops` is `briefline`."""

from ops.cli import main

main()
