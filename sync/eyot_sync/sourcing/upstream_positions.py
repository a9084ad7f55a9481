"""A stream's positions in its own origins, requested by its mirrors: an extension of Eyot in the metadata of a consumer request.

A mirror requests them (`"eyot.origins": "?"`). The answer has the same place; later changes are in requests for flow
control (the header `Eyot-Origins`). A server without the extension returns the request's text unchanged.
"""

KEY = "eyot.origins"
ASKED = "?"
HEADER = b"Eyot-Origins"
