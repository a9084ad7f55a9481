# What the compiled twin offers is what the plain one does.
from eyot_wire.fan_out import FanOut as FanOut
from eyot_wire.fan_out import IngestQueue as IngestQueue
from eyot_wire.fan_out import Interest as Interest
from eyot_wire.fan_out import Match as Match
