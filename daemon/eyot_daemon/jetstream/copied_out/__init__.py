"""What others who copy a stream have confirmed: the origin's side of mirrors and sources."""
