"""Where artifacts are kept: in a folder, in a bucket of an S3-compatible store, or in memory."""
