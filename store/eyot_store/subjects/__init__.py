"""What a store knows of subjects: how many messages each has, its first and its last, in memory and on disk."""
