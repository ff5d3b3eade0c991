"""Hooks of schemathesis for the agents' routes.

A case that is meant to be valid speaks of the task that the agent holds at that moment: without this, nearly every answer
would be that the agent holds no such task. What is meant to be invalid is sent as it was made.
"""

import json
import os
import urllib.request

import schemathesis
from schemathesis.generation import GenerationMode

URL = os.environ["FLEET_URL"]
AGENT = os.environ["FLEET_AGENT"]
TOKENS = {"admin": os.environ["FLEET_ADMIN_TOKEN"], "agent": os.environ["FLEET_AGENT_TOKEN"]}


def post(who, path, body):
    request = urllib.request.Request(
        f"{URL}/api/v1/{path}",
        data=json.dumps(body).encode(),
        headers={"authorization": f"Bearer {TOKENS[who]}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or "null")


def held():
    """The agent's claim; a new one where it holds none."""
    claim = post("agent", f"agents/{AGENT}/claim", {})
    if claim is None:
        task = {"project": "web", "prompt": "Count to ten."}
        post("admin", "tasks", {"tasks": [task] * 10})
        claim = post("agent", f"agents/{AGENT}/claim", {"wait_s": 10})
    return claim


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    claim = held()
    parameters, query, body = case.path_parameters, case.query, case.body
    if "task" in parameters:
        parameters["task"] = claim["task"]
    if "epoch" in (query or {}):
        query["epoch"] = claim["epoch"]
    if isinstance(body, dict):
        if "epoch" in body:
            body["epoch"] = claim["epoch"]
        for task in body.get("tasks", []):
            task["project"] = claim["project"]
            # The names that an agent gives its tasks begin with their project.
            if isinstance(task.get("id"), str) and ":" not in task["id"]:
                task["id"] = f"{claim['project']}:{task['id'][:40]}"
