"""The processes of one generation on a node: their environment, how they are judged, and where they hang."""
