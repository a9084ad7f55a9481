# What the compiled twin offers is what the plain one does.
from eyot_store.record_run import encode_run as encode_run
from eyot_store.record_run import note_records as note_records
from eyot_store.record_run import plain_size as plain_size
from eyot_store.record_run import pub_acks as pub_acks
