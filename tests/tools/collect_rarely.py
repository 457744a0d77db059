"""Becomes the `sitecustomize` of the tests' environments: Python looks for garbage rarely, and not at all as it ends.

Of the CPU that a process takes to import PyTorch, Paddle or MindSpore and to end, a quarter was that.
"""

import atexit
import gc

gc.set_threshold(100_000, 50, 100)
atexit.register(gc.freeze)
