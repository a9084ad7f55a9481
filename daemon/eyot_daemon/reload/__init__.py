"""A changed configuration or token, carried into the running broker."""
