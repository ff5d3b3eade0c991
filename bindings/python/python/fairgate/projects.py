"""Projects and agents: which ready task goes to which idle agent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, overload

from ._core import schedule as _schedule


@overload
def schedule(snapshot: Mapping[str, Any] | str, *, explain: Literal[False] = False) -> list[dict[str, str]]: ...
@overload
def schedule(snapshot: Mapping[str, Any] | str, *, explain: Literal[True]) -> dict[str, Any]: ...
def schedule(
    snapshot: Mapping[str, Any] | str, *, explain: bool = False
) -> list[dict[str, str]] | dict[str, Any]:
    """Gives ready tasks to idle agents by the projects' credit weights, from one snapshot (a dict, or JSON text).

    The result is a list of ``{"agent_id", "task_id", "project_id"}``; with ``explain`` an object that also says, for
    every project and every ready task, what it got or what keeps it waiting. Nothing is remembered between calls.
    What is wrong with a snapshot is a ValueError that names the field.
    """
    text = snapshot if isinstance(snapshot, str) else json.dumps(snapshot)
    result: list[dict[str, str]] | dict[str, Any] = json.loads(_schedule(text, explain))
    return result
