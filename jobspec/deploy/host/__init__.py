"""A job on one host: its files, containers and lock, and what the host tells."""
