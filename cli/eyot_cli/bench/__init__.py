"""`eyot bench`: rates of publishing, subscribing and publishing into a stream.

Entry point: `commands.bench`. `counting.py` counts the messages in what a server sends, `load.py` sends and receives over
connected clients, `results.py` prints rates.
Imports `jetstream`, `connection`, `terminal` and `values`.
"""
