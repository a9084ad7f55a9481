"""Values on the command line: durations, sizes, moments in time, names of streams, consumers and buckets.

Entry points: the functions of each module, as callbacks of options. Imports nothing.
"""
