"""`eyot kv` and `eyot object`: key-value buckets (ADR-8) and object buckets (ADR-20).

Entry points: `kv.kv`, `objects.objects`. A bucket is a stream: `changes.py` changes it, `kv_entries.py` reads its messages,
`putting.py` puts an object.
Imports `jetstream`, `messages`, `connection`, `terminal`, `values` and `eyot_wire`.
"""
