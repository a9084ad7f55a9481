# What the compiled twin offers is what the plain one does.
from eyot_wire.fan_out import FanOut as FanOut
from eyot_wire.fan_out import Inlet as Inlet
from eyot_wire.fan_out import Interest as Interest
from eyot_wire.fan_out import Match as Match
from eyot_wire.fan_out import Outlet as Outlet
from eyot_wire.fan_out import Traffic as Traffic
