"""What several test rooms need: throw-away servers."""
