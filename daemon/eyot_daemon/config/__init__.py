"""What the configuration and the command line say, as typed values, and how they are read and checked."""
