"""What the launcher asks of the operating system: files, processes, the network. It knows nothing of jobs."""
