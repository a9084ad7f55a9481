"""What all commands of `eyot` share on a terminal: errors, tables and JSON, questions, private files, completion.

Entry points: `failure.Failure` for what ends a command, `show.print_line` and the other functions there for what it prints;
`lazy.LazyGroup` loads a command when it is used.
Imports `eyot_wire`.
"""
