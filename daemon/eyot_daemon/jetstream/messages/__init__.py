"""What messages tell a stream to do with them, and what hangs on the transaction that stores them."""
