"""The broker: configuration, routing, connections, leaf links, JetStream and monitoring. Entry point: `main.main` (`eyotd`)."""
