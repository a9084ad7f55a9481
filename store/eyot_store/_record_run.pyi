# What the compiled twin offers is what the plain one does.
from eyot_store.record_run import checksum as checksum
from eyot_store.record_run import count_bytes as count_bytes
from eyot_store.record_run import encode_run as encode_run
from eyot_store.record_run import pub_acks as pub_acks
from eyot_store.record_run import scan_batch as scan_batch
