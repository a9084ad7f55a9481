# What the compiled twin offers is what the plain one does.
from eyot_wire.jetstream.copied_run import content_bytes as content_bytes
from eyot_wire.jetstream.copied_run import has_headers as has_headers
from eyot_wire.jetstream.copied_run import mirrored_run as mirrored_run
from eyot_wire.jetstream.copied_run import other_kind as other_kind
from eyot_wire.jetstream.copied_run import read_run as read_run
from eyot_wire.jetstream.copied_run import same_subject as same_subject
from eyot_wire.jetstream.copied_run import sourced_run as sourced_run
from eyot_wire.jetstream.copied_run import stamp_run as stamp_run
