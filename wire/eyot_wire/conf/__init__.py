"""The nats-server configuration grammar: text to values that keep their position.

    values.py   ConfMap, ConfValue: the parsed configuration, every value with file, line and column
    errors.py   ConfError, ConfFileError, ConfSyntaxError, Position
    scalars.py  meaning of an unquoted word: boolean, integer with suffix, float, time or string
    lexer.py    characters to keys, words, quoted strings, blocks, comments
    parser.py   maps, arrays, includes, variables

Entry points: `parser.parse_file` and `parser.parse_text`. Imports nothing else of Eyot.
The grammar does not know which keys exist or which types they have: `eyot_daemon.config` decides that.
"""

from eyot_wire.conf.errors import ConfError, ConfFileError, Position
from eyot_wire.conf.parser import parse_file, parse_text
from eyot_wire.conf.values import ConfEntry, ConfMap, ConfValue

__all__ = ["ConfEntry", "ConfError", "ConfFileError", "ConfMap", "ConfValue", "Position", "parse_file", "parse_text"]
