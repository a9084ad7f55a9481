"""The daemon among other processes: log, signals, files that tell of it, systemd."""
