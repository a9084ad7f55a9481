# What the compiled twin offers is what the plain one does.
from eyot_wire.mqtt.publish_run import payloads as payloads
from eyot_wire.mqtt.publish_run import scan_acked as scan_acked
from eyot_wire.mqtt.publish_run import scan_mixed as scan_mixed
from eyot_wire.mqtt.publish_run import scan_run as scan_run
