"""The command `jobctl`; also `python -m jobctl`, as the background supervisor is started."""

import os
import signal


def start() -> None:
    """Run the command of this process. Until it begins (`interruptible`), Ctrl-C ends it at once: nothing is to undo.

    Imports take a third of a second. A KeyboardInterrupt in one of them shows as a traceback, or is lost.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from jobctl.main import main

    main()


if __name__ == "__main__":
    start()
