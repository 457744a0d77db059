"""`python -m jobctl`, as the background supervisor is started."""

from jobctl.main import main

main()
