"""The broker port over RabbitMQ and in memory, with the shared handling of a delivery."""
