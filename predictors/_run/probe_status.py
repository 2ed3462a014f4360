"""The record of whether a probe observed the calls and what it could not read."""

from typing import Any, Dict, NamedTuple, Optional


class ProbeStatus(NamedTuple):
    """The result of using one probe.

    ``reason`` says why it was not available. ``missing`` maps what it could not read to the reason.
    ``fault`` is what went wrong while it observed, or empty. ``stepwise`` says of a layer profiler
    whether it runs the layers one by one; it is None for all else.
    """

    probe: str
    available: bool
    reason: str = ""
    missing: Optional[Dict[str, str]] = None
    fault: str = ""
    stepwise: Optional[bool] = None

    def as_fields(self) -> Dict[str, Any]:
        """Return the status as it is sent and stored: a dict for JSON."""
        fields: Dict[str, Any] = {
            "probe": self.probe,
            "available": self.available,
            "reason": self.reason,
            "missing": self.missing or {},
            "fault": self.fault,
        }
        if self.stepwise is not None:
            fields["stepwise"] = self.stepwise
        return fields
