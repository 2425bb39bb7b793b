"""The bench: its statistics, loads, teams and what it writes. What it measures is no test's business."""
