"""Answers to requests that fail because Prometheus or the API server does, and their causes.

`adapter.server.causes.collector` has the causes of metrics without a value.
"""

from __future__ import annotations

from adapter import errors
from adapter.clients import own_rights, quirks, reachability
from adapter.errors import ApiError, BackendError
from adapter.server.causes.collector import CauseCollector
from rules.causes import missing
from rules.errors import AmbiguousSampleError
from rules.findings import Finding
from rules.kinds import GroupResource
from rules.query.plan import MAX_LENGTH, ExternalPlan, Plan
from rules.ruleset import CompiledRule

_FORBIDDEN = 403


def of_query(
    collector: CauseCollector, subject: str, plan: Plan | ExternalPlan, error: BackendError
) -> ApiError:
    """Log the cause for a query of `plan` that failed, and return the 500."""
    rule, shown = _refused_step(plan, error.query)
    cause = query_cause(rule, error, query=shown)
    collector.log_causes(subject, [cause], error)
    return errors.internal("unable to fetch metrics", [cause])


def of_list(
    collector: CauseCollector, subject: str, resource: GroupResource, error: BackendError
) -> ApiError:
    """Log the cause for a list that failed, and return the 500."""
    if isinstance(error, errors.Refused) and error.status == _FORBIDDEN:
        right = own_rights.of_objects(resource)
        cause = missing.missing_right(str(right), right.grant())
    else:
        cause = missing.failed_list(resource)
    collector.log_causes(subject, [cause], error)
    return errors.internal("unable to list matching resources", [cause])


def of_samples(collector: CauseCollector, subject: str, error: AmbiguousSampleError) -> ApiError:
    """Log the cause for several samples of one object, and return the 500."""
    cause = missing.several_samples(error)
    collector.log_causes(subject, [cause])
    return errors.internal("unable to fetch metrics", [cause])


def query_cause(
    rule: CompiledRule, error: BackendError, *, query: str = "", key: str = "metricsQuery"
) -> Finding:
    """Return the cause for a query that failed; `query` is shown, `key` is its key in the rule."""
    if isinstance(error, errors.Partial):
        return missing.partial_response(str(rule.config.where))
    too_long = quirks.is_too_long(error.status, error.refusal)
    if too_long and error.query_length > MAX_LENGTH:
        return missing.long_query(str(rule.config.where), error.query_length)
    return missing.failed_query(
        str(rule.config.where),
        refusal=error.refusal,
        problem=reachability.problem_of(error, rule.config.source),
        query=query,
        key=key,
        too_large=isinstance(error, errors.TooLarge),
    )


def _refused_step(plan: Plan | ExternalPlan, refused: str) -> tuple[CompiledRule, str]:
    """Return the rule whose query is `refused`, and that query; else the first rule and nothing.

    A query that is shared with other requests may name objects that this caller may not see.
    """
    steps = (plan.step,) if isinstance(plan, ExternalPlan) else plan.steps
    if refused:
        queries = (plan.promql(),) if isinstance(plan, ExternalPlan) else plan.promql()
        for step, query in zip(steps, queries, strict=True):
            if query == refused:
                return step.rule, query
    return steps[0].rule, ""
