"""How a message finds those who get it: accounts, subscriptions, routes, imports, and the broker that holds them."""
