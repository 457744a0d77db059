"""What is known of a job, as the outbox keeps it. Pure."""

from __future__ import annotations

from jobctl.jobspec.deploy.model.untrusted import Json, as_moment, as_number, as_text, objects
from jobctl.jobspec.launcher.telling.news import Begun, Mishap, Told, Trouble, counts_in


def kept_told(told: Told) -> Json:
    """Return what is known of a job as JSON."""
    return {
        "generation": told.generation,
        "ended": told.ended,
        "trouble": told.trouble and _kept_trouble(told.trouble),
        "apart": [_kept_trouble(one) for one in told.apart],
        "begun": told.begun and dict(vars(told.begun)),
        "waiting": told.waiting,
        "away": sorted(told.away),
        "lost": sorted(told.lost),
    }


def _kept_trouble(trouble: Trouble) -> Json:
    kept = [{**vars(one), "nodes": list(one.nodes)} for one in trouble.mishaps]
    return {"at": trouble.at, "mishaps": kept, "more": trouble.more}


def told_from(data: Json) -> Told:
    """Return what `kept_told` returned; what cannot be read is as at the beginning."""
    return Told(
        as_number(data.get("generation")),
        data.get("ended") is True,
        _trouble(data.get("trouble")),
        tuple(one for one in map(_trouble, objects(data.get("apart"))) if one is not None),
        _begun(data.get("begun")),
        as_text(data.get("waiting")),
        frozenset(counts_in(data.get("away"))),
        frozenset(counts_in(data.get("lost"))),
    )


def _trouble(data: object) -> Trouble | None:
    """Return trouble as it was kept, also that of an earlier version, which kept one failure; None of all else."""
    if not isinstance(data, dict) or (at := as_moment(data.get("at"))) is None:
        return None
    kept = objects(data["mishaps"]) if "mishaps" in data else [data]
    mishaps = tuple(one for one in map(_mishap, kept) if one is not None)
    return Trouble(at, mishaps, as_number(data.get("more")) or 0) if mishaps else None


def _mishap(data: Json) -> Mishap | None:
    generation, kind, text = as_number(data.get("generation")), as_text(data.get("kind")), as_text(data.get("text"))
    if generation is None or kind is None or text is None:
        return None
    return Mishap(generation, kind, text, tuple(counts_in(data.get("nodes"))))


def _begun(data: object) -> Begun | None:
    said = data if isinstance(data, dict) else {}
    number, at, run = as_number(said.get("number")), as_moment(said.get("at")), as_text(said.get("run"))
    return None if number is None or at is None or run is None else Begun(number, at, run, said.get("told") is True)
