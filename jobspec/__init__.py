"""From a job spec to steps on hosts: the library behind the command `jobctl`."""
