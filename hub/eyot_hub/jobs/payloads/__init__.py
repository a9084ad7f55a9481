"""Payloads to typed columns: what is extracted, and the decoders of JSON, Avro, Protobuf, MessagePack and CBOR.

Entry points: `payloads.PayloadParser` for a task, `payload_shape.py` for the fields, `schemas.py` and `registry.py` for where schemas come from.
Imports nothing of the other packages.
"""
