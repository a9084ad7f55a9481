"""The words of the JetStream API: requests, configurations, errors, acknowledgements."""
