"""What a stream knows of its own origins, asked by its mirrors: Eyot's own addition to the metadata of a request for a consumer.

A mirror asks (`"eyot.origins": "?"`). The answer stands in the same place, and what is new since in requests for flow control (the header
`Eyot-Origins`). A server that does not know of it gives the request's text back.
"""

KEY = "eyot.origins"
ASKED = "?"
HEADER = b"Eyot-Origins"
