"""What leaves a stream, and when."""
