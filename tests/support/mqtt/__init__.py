"""Clients of MQTT, by hand and from the grammar; faults, kills and power cuts."""
