"""Whatever bytes come in at any edge, the system says so and goes on."""
