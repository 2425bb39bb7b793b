"""The whole system in one process: producer, orchestrators, workers and agents, over both pairs of board and broker."""
