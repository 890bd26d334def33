"""Addresses outside the explorer: the workflow in Temporal's own UI."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote


class Links:
    """Where Temporal's UI is.

    Args:
        temporal_ui: Its address now; None while nobody knows.
        namespace: The one that is meant where a row names none, now.
    """

    def __init__(
        self, temporal_ui: Callable[[], str | None], *, namespace: Callable[[], str | None]
    ) -> None:
        self._temporal_ui = temporal_ui
        self._namespace = namespace

    @property
    def temporal_ui(self) -> str | None:
        """Address of Temporal's UI."""
        return self._temporal_ui()

    def workflow(
        self, workflow_id: str, workflow_run_id: str | None, namespace: str | None
    ) -> str | None:
        """A workflow in it."""
        ui = self._temporal_ui()
        if ui is None:
            return None
        parts = [
            "namespaces",
            namespace or self._namespace() or "default",
            "workflows",
            workflow_id,
        ]
        parts += [workflow_run_id] if workflow_run_id else []
        return "/".join([ui.rstrip("/"), *(quote(part, safe="") for part in parts)])
