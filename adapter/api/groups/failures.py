"""Causes of requests that fail because Prometheus or the API server does.

`adapter.api.missing` has the causes of metrics without a value.
"""

from __future__ import annotations

from adapter import errors
from adapter.clients import reachability
from adapter.cluster.rights import objects_right
from adapter.errors import BackendError
from rules.diagnosis import missing
from rules.diagnosis.missing import Cause
from rules.kinds import GroupResource
from rules.ruleset import CompiledRule

_FORBIDDEN = 403


def of_query(rule: CompiledRule, error: BackendError, *, key: str = "metricsQuery") -> Cause:
    """Return the cause for a query that failed; `key` is its key in the rule."""
    return missing.failed_query(
        str(rule.config.where),
        refusal=error.refusal,
        problem=reachability.problem_of(error, rule.config.source),
        key=key,
    )


def of_list(resource: GroupResource, error: BackendError) -> tuple[Cause, ...]:
    """Return the cause for a list that failed, if it is a missing right."""
    if not isinstance(error, errors.Refused) or error.status != _FORBIDDEN:
        return ()
    right = objects_right(resource)
    return (missing.missing_right(str(right), right.grant()),)
