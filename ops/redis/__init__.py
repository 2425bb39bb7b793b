"""What Redis is told: its configuration as a file, and the access list of the roles as data."""
