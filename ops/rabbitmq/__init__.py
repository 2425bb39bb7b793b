"""What RabbitMQ is told: its configuration and policies as files, and the users and rights of the roles as data."""
