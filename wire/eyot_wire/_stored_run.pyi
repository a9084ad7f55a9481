# What the compiled twin offers is what the plain one does.
from eyot_wire.stored_run import StoredRun as StoredRun
