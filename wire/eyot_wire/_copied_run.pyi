# What the compiled twin offers is what the plain one does.
from eyot_wire.jetstream.copied_run import read_run as read_run
from eyot_wire.jetstream.copied_run import stamp_run as stamp_run
