"""Rights that the adapter needs in the cluster, and what does not work without each.

The parts of the server require them, and `doctor` reviews them for the adapter's account.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace

from adapter.clients.rights import Right
from certs import secret
from rules.kinds import NAMESPACES, NODES, PODS, WORKLOADS, GroupResource, Kinds
from rules.metrics_apis import CUSTOM
from rules.ruleset import RuleSet

AUTHENTICATION_CONFIG = Right(
    group="",
    resource="configmaps",
    verbs=("get", "list", "watch"),
    consequence="the client CAs and the front proxy's are not known, or not followed",
    name="extension-apiserver-authentication",
    namespace="kube-system",
)
"""The right to follow the ConfigMap with the client CA and the request-header CA."""
TOKEN_REVIEWS = Right(
    group="authentication.k8s.io",
    resource="tokenreviews",
    verbs=("create",),
    consequence="callers with a token get 401",
)
"""The right to authenticate callers by their tokens."""
ACCESS_REVIEWS = Right(
    group="authorization.k8s.io",
    resource="subjectaccessreviews",
    verbs=("create",),
    consequence="callers get 500",
)
"""The right to authorize callers."""


def of_secret(service: str, namespace: str) -> Right:
    """Return the right to share the serving CA of a Service."""
    return Right(
        group="",
        resource="secrets",
        verbs=("get", "update"),
        consequence="replicas cannot share a serving CA",
        name=secret.name_of(service),
        namespace=namespace,
    )


def of_apiservices(
    names: Iterable[str], own: Container[str] = CUSTOM.apiservices
) -> Iterator[Right]:
    """Yield the rights to publish the caBundle in those of the APIServices `names` that are `own`.

    Without its component, the APIService of another group may belong to another server.
    """
    for name in names:
        yield Right(
            group="apiregistration.k8s.io",
            resource="apiservices",
            verbs=("get", "patch") if name in own else ("get",),
            consequence="the API server may refuse the serving certificate",
            name=name,
        )


def of_rules(ruleset: RuleSet, kinds: Kinds) -> Iterator[Right]:
    """Yield the rights to read the objects that overrides of rules map to."""
    resources = {PODS, NODES} if ruleset.resource_rules else {PODS}
    for rule in ruleset.rules:
        labels = [each.label for each in rule.config.resources.overrides]
        resources.update(rule.mapping.bind(kinds).associations(labels))
    yield from map(of_objects, sorted(resources - {NAMESPACES}, key=str))
    yield from map(of_scale, kinds.scale_targets)
    if any(rule.config.workloads for rule in ruleset.rules):
        for resource in WORKLOADS:
            consequence = f"metrics of {resource} cannot be computed from their pods"
            yield replace(of_objects(resource), consequence=consequence)


def of_scale(resource: GroupResource) -> Right:
    """Return the right to read the selector of the pods of a scale target."""
    return Right(
        group=resource.group,
        resource=f"{resource.resource}/scale",
        verbs=("get",),
        consequence=f"the pods of {resource} are not known, and HPAs on them are not watched",
    )


def of_objects(resource: GroupResource) -> Right:
    """Return the right to read the objects of a resource."""
    return Right(
        group=resource.group,
        resource=resource.resource,
        verbs=("list", "watch"),
        consequence=f"metrics of {resource} cannot be selected by labels",
    )
