"""Operators, accounts, users and certificates made on the spot, and who asks for them."""
