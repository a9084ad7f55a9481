# What the compiled twin offers is what the plain one does.
from eyot_wire.out_buffer import OutBuffer as OutBuffer
from eyot_wire.out_buffer import Traffic as Traffic
from eyot_wire.out_buffer import send_out as send_out
