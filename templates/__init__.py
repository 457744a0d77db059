"""Jinja templates of the artefacts; read through `importlib.resources`."""
