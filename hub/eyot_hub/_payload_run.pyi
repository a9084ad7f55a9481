# What the compiled twin offers is what the plain one does.
from eyot_hub.payload_run import JsonScanner as JsonScanner
from eyot_hub.payload_run import copy_texts as copy_texts
from eyot_hub.payload_run import hash_payloads as hash_payloads
