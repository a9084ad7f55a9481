# What the compiled twin offers is what the plain one does.
from eyot_wire.mqtt.publish_run import payloads as payloads
from eyot_wire.mqtt.publish_run import scan_run as scan_run
