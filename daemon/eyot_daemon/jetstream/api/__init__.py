"""The JetStream API: its subjects, and who answers them."""
