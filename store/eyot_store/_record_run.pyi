# What the compiled twin offers is what the plain one does.
from eyot_store.record_run import encode_run as encode_run
from eyot_store.record_run import look_over as look_over
from eyot_store.record_run import pub_acks as pub_acks
from eyot_store.record_run import weigh as weigh
