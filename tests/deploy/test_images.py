"""How far a pull is, from the lines that the engine tells."""

from __future__ import annotations

from jobctl.jobspec.deploy.host.images import PullProgress


def test_layers_add_up() -> None:
    progress = PullProgress()
    said = [
        (progress.add(line), str(progress))
        for line in (
            {"status": "Pulling from library/torch", "id": "latest"},
            {"status": "Pulling fs layer", "id": "a", "progressDetail": {}},
            {"status": "Downloading", "id": "a", "progressDetail": {"current": 1_000_000, "total": 8_000_000}},
            {"status": "Downloading", "id": "b", "progressDetail": {"current": 2_000_000, "total": 2_000_000}},
            {"status": "Download complete", "id": "a", "progressDetail": {}},
            {"status": "Extracting", "id": "a", "progressDetail": {"current": 1, "total": 9}},
            {"status": "Already exists", "id": "c", "progressDetail": {}},
        )
    ]
    assert said == [
        (False, "0 of 0 MB"),
        (False, "0 of 0 MB"),
        (True, "1 of 8 MB"),
        (True, "3 of 10 MB"),
        (True, "10 of 10 MB"),
        (False, "10 of 10 MB"),
        (False, "10 of 10 MB"),
    ]
