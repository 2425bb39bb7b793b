"""What an earlier version wrote is read by this one, and old and new work side by side."""
