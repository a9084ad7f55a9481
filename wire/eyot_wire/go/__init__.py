"""JSON, numbers, durations and times as Go writes and reads them: clients of nats-server expect its forms and words.

Entry points: `json.values` parses JSON, `values.as_go` makes structs of it, `duration.parse_duration_ns`, `time.ns_to_rfc3339`.
Imports no other package of Eyot.
"""
