"""What happens to a request: schedule, recover, aggregate. It never calls a model."""
