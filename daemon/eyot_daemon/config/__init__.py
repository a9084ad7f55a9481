"""The configuration and the command line as typed values: reading and checking.

Entry points: `read.load_options`, `args.parse_args`, `check.check_options`. Imports no other package of the
daemon; of other floors `eyot_wire`, and the options that `eyot_sync` defines (`leaf`, `policy`).
"""
