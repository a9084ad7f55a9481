"""The NATS protocols as values and pure functions: the floor everything else stands on.

Nothing here opens a socket, reads a clock or starts a task. Import the modules, each holds one noun:

    subject, sublist, transform, mapping       subjects, who is interested in them, and their rewriting
    frames, scanner, leaf_scanner, headers     bytes to operations and back, client and leaf protocol
    info                                       INFO and CONNECT
    ack, stream_source, nuid, duration         what JetStream writes into subjects and headers
    js_*, status                               the JetStream API's messages, errors and statuses
    conf, creds, nkey, jwt                     configuration grammar, credentials, keys, tokens
"""
