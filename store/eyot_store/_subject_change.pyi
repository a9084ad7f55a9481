# What the compiled twin offers is what the plain one does.
from eyot_store.subject_change import Change as Change
