"""Random conversations with the JetStream of another account: its API, its streams' subjects and what it delivers are imported."""

from __future__ import annotations

from support.jetstream.operations import Talker

_SERVICES = ("$JS.API.>", "$JS.ACK.>", "$JS.FC.>", "a.>", "b.>", "c.>")
_STREAMS = ("dlv.>", "rp.>", "$JS.EVENT.>")

CONFIG = f"""
server_name: TALKER
jetstream {{ store_dir: "%WORKDIR%/js" }}
accounts {{
  OWNS: {{
    jetstream: enabled
    users: [{{ user: owns, password: owns }}]
    exports: [
      {", ".join(f'{{ service: "{subject}", response_type: stream }}' for subject in _SERVICES)},
      {", ".join(f'{{ stream: "{subject}" }}' for subject in _STREAMS)}
    ]
  }}
  USES: {{
    users: [{{ user: uses, password: uses }}]
    imports: [
      {", ".join(f'{{ service: {{ account: OWNS, subject: "{subject}" }} }}' for subject in _SERVICES)},
      {", ".join(f'{{ stream: {{ account: OWNS, subject: "{subject}" }} }}' for subject in _STREAMS)}
    ]
  }}
}}
"""


class Imported(Talker):
    """All that is said in an account of its own, said in one that imports."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.connect = {"user": "uses", "pass": "uses"}
