"""Jinja templates of the artefacts and of the report; read through `importlib.resources`."""
