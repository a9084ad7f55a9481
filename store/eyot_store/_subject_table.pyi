# What the compiled twin offers is what the plain one does.
from eyot_store.subject_table import SubjectTable as SubjectTable
