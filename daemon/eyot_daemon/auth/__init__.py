"""Who somebody is, and what they may do: users of the configuration, operators' tokens, callouts."""
