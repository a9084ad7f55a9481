# What the compiled twin offers is what the plain one does.
from eyot_wire.frame_scanner import FrameScanner as FrameScanner
from eyot_wire.frames import Publishes as Publishes
from eyot_wire.frames import detach_all as detach_all
