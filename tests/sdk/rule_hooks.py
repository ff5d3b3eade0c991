"""Hooks of schemathesis for rules that no OpenAPI document can state.

A case that is meant to be valid is changed so that it follows them. What is meant to be invalid is sent as it was made.
"""

import json

import schemathesis
from schemathesis.generation import GenerationMode

POLICY = {"share": {"by": "tenant"}}


def split_differs(query):
    """`split` is another attribute than `by`, which has a default."""
    if "split" in query and query["split"] == query.get("by", query["split"]):
        del query["split"]


def kept_time(query):
    """History is kept for a day, and in steps of 5 seconds for an hour."""
    if "since" in query:
        query["since"] = "10m"


def known_pool(parameters):
    """The embedded configuration has one pool, which divides by groups and tenants."""
    if "pool" in parameters:
        parameters["pool"] = "sim"


def one_change(body):
    """A what-if has exactly one of three changes, and a time range that the journal has."""
    given = [name for name in ("policy", "policy_file", "weights") if body.pop(name, None)]
    change = given[0] if given else "policy"
    if change == "weights":
        body["weights"] = [{"by": "tenant", "flow": "demo", "weight": 7}]
    elif change == "policy_file":
        body["policy_file"] = json.dumps(POLICY)
    else:
        body["policy"] = POLICY
    body.pop("since", None)
    body.pop("until", None)
    body["pool"] = "sim"


def own_names(body):
    """The names that a tenant gives its tasks begin with a colon; other names are shared by all tenants."""
    for task in body.get("tasks", []):
        for name in ("id", "needs", "affinity"):
            task.pop(name, None)


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    query, body, path = case.query or {}, case.body, case.operation.path
    if path.endswith("/usage"):
        split_differs(query)
    if path.endswith("/history"):
        kept_time(query)
        known_pool(case.path_parameters or {})
        if query.get("by") not in (None, "tenant", "group"):
            query["by"] = "tenant"
    if case.method.upper() == "PATCH" and path.endswith("/workers/{worker}"):
        # The one worker of the embedded configuration has no metrics, which thresholds would be about.
        case.path_parameters["worker"] = "another"
    if isinstance(body, dict):
        if path.endswith("/what-if"):
            one_change(body)
        if path.endswith("/tasks"):
            own_names(body)
