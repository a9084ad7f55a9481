"""One stored message as bytes, with its checksum, and sealed where the store is encrypted.

Entry points: `record.encode_record` and `record.decode_record`, `codec.RecordCodec`, `store_cipher.unlock`.
Imports `errors` only.
"""
