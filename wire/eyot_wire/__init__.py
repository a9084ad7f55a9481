"""The NATS protocols as values and pure functions: the lowest floor, on which all other packages stand.

No module here opens a socket, reads a clock or starts a task. Entry points are the modules, each of which holds one noun:

    subject, sublist, pattern_set, transform, mapping   subjects, interest in subjects, and rewriting of subjects
    frames, scanner, leaf_scanner, headers              bytes to operations and back, for the client and the leaf protocol
    info, status                                        INFO and CONNECT; Eyot's own status reports
    fan_out, first_deliveries, stored_run               one message or a run of messages to many receivers
    native                                              the compiled modules, or their plain twins
    conf, trust, go                                     configuration grammar; keys and tokens; Go's JSON, numbers and times
    jetstream, archive                                  the JetStream API; backups of streams

Imports the standard library and msgspec, on first use nkeys and PyNaCl (`trust`); no other package of Eyot.
"""
