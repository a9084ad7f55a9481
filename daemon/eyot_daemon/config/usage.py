"""The output of `eyotd --help` and `eyotd --help_tls`."""

USAGE = """
Usage: eyotd [options]

Server Options:
    -a, --addr, --net <host>         Bind to host address (default: 0.0.0.0)
    -p, --port <port>                Use port for clients (default: 4222)
    -n, --name
        --server_name <server_name>  Server name (default: auto)
    -P, --pid <file>                 File to store PID
    -m, --http_port <port>           Use port for http monitoring
    -ms,--https_port <port>          Use port for https monitoring (needs a certificate)
    -c, --config <file>              Configuration file
    -t                               Test configuration and exit
    -sl,--signal <signal>[=<pid>]    Send signal to eyotd process (ldm, stop, quit, term, reopen, reload)
                                     <pid> can be either a PID (e.g. 1) or the path to a PID file
        --client_advertise <string>  Client URL to advertise to other servers
        --ports_file_dir <dir>       Creates a ports file in the specified directory (nats-server_<pid>.ports)

Logging Options:
    -l, --log <file>                 File to redirect log output
    -T, --logtime                    Timestamp log entries (default: true)
        --logtime_utc                Timestamps in UTC instead of local time
    -s, --syslog                     Log to syslog
    -r, --remote_syslog <addr>       Syslog server addr (udp://localhost:514)
    -D, --debug                      Enable debugging output
    -V, --trace                      Trace the raw protocol
    -VV                              Verbose trace (traces system account as well)
    -DV                              Debug and trace
    -DVV                             Debug and verbose trace (traces system account as well)
        --log_size_limit <limit>     Logfile size limit (default: auto)
        --max_traced_msg_len <len>   Maximum printable length for traced messages (default: unlimited)

JetStream Options:
    -js, --jetstream                 Enable JetStream functionality
    -sd, --store_dir <dir>           Set the storage directory

Authorization Options:
        --user <user>                User required for connections
        --pass <password>            Password required for connections
        --auth <token>               Authorization token required for connections

TLS Options:
        --tls                        Enable TLS, do not verify clients (default: false)
        --tlscert <file>             Server certificate file
        --tlskey <file>              Private key for server certificate
        --tlsverify                  Enable TLS, verify client certificates
        --tlscacert <file>           Client certificate CA for verification

Cluster Options (understood and refused: clusters are the hub's job):
        --routes <rurl-1, rurl-2>
        --cluster <cluster-url>
        --cluster_name <string>
        --no_advertise <bool>
        --cluster_advertise <string>
        --connect_retries <number>
        --cluster_listen <url>

Common Options:
    -h, --help                       Show this message
    -v, --version                    Show version
        --help_tls                   TLS help
"""

TLS_USAGE = """
TLS is configured by a block in the configuration file:

    tls {
        cert_file: "/etc/eyot/server.crt"    # PEM, may hold the chain
        key_file:  "/etc/eyot/server.key"
        ca_file:   "/etc/eyot/ca.crt"        # who signs the clients' certificates
        verify:    true                      # clients must present one
        timeout:   2                         # seconds for the handshake
        min_version: "1.2"
        handshake_first: false               # true, auto, or how long to wait for a TLS hello
        cipher_suites: ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]
    }
"""
