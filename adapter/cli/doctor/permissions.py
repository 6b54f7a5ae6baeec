"""Checks of `doctor`: rights of the adapter's account and of the HPA controller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import orjson

from adapter import errors
from adapter.background import gather_or_cancel
from adapter.cli.doctor import deployment, installation
from adapter.cli.doctor.installation import Installed
from adapter.clients import own_rights, rights
from adapter.clients.rights import Account, Right
from adapter.settings import Settings
from rules.findings import Finding, failure, ok
from rules.kinds import NAMESPACES, NODES, PODS, SCALE_TARGETS, GroupResource
from rules.metrics_apis import CUSTOM, EXTERNAL, USAGE

_CONTROLLER = Account(namespace="kube-system", name="horizontal-pod-autoscaler")
_MAX_KINDS = 20


async def of_adapter(installed: Installed) -> Iterable[Finding]:
    """Return which rights the account of the adapter lacks, and what grants them."""
    account = await installation.account(installed)
    apis = [CUSTOM, EXTERNAL]
    kinds = await _kinds(installed)
    if not installed.own.keys().isdisjoint(USAGE.apiservices):
        apis.append(USAGE)
        kinds = sorted({*kinds, NODES})
    names = [name for api in apis for name in api.apiservices]
    flags = await _flags(installed)
    scale_targets = SCALE_TARGETS if flags is None else flags.cluster.scale_targets
    required = (
        *(
            own_rights.of_scale(each) if each in scale_targets else own_rights.of_objects(each)
            for each in kinds
        ),
        own_rights.TOKEN_REVIEWS,
        own_rights.AUTHENTICATION_CONFIG,
        own_rights.ACCESS_REVIEWS,
        *own_rights.of_apiservices(names, installed.own.keys() & CUSTOM.apiservices),
        *_of_secret(installed, flags),
    )
    reviewed = None if installed.user == account.user else account
    missing = await _missing(installed, required, reviewed)
    if not missing:
        return [ok("rights", f"{account.user} has the {len(required)} rights that it needs")]
    return [
        failure(
            "rights",
            f"the adapter ({account.user}) has no permission to {right}",
            cause=f"RBAC does not grant it, so {right.consequence}",
            cure=right.grant(account.name),
        )
        for right in missing
    ]


async def _flags(installed: Installed) -> Settings | None:
    """Return the flags of the adapter's Deployment; None if they are not known."""
    try:
        return await deployment.flags(installed)
    except errors.Refused:
        return None


def _of_secret(installed: Installed, flags: Settings | None) -> Iterable[Right]:
    """Return the right to share the serving CA, unless the certificate is that of a flag."""
    if flags is not None and flags.serving.tls_cert_file is not None:
        return ()
    return (own_rights.of_secret(installed.service, installed.namespace),)


async def of_hpas(installed: Installed) -> Iterable[Finding]:
    """Return whether the HPA controller may read metrics."""
    name = "rights of the HPA controller"
    required = (
        _reading(CUSTOM.name, "pods/any", "get"),
        _reading(EXTERNAL.name, "any", "list"),
    )
    missing = await _missing(installed, required, _CONTROLLER)
    if not missing:
        return [ok(name, f"{_CONTROLLER.user} may read custom and external metrics")]
    return [
        failure(
            name,
            f"{_CONTROLLER.user} has no permission to {right} in {right.group}",
            cause=f"RBAC does not grant it, so {right.consequence}",
            cure="bind the ClusterRole system:controller:horizontal-pod-autoscaler to it",
        )
        for right in missing
    ]


def _reading(group: str, resource: str, verb: str) -> Right:
    return Right(
        group=group, resource=resource, verbs=(verb,), consequence="autoscalers get no values"
    )


async def _missing(
    installed: Installed, required: Iterable[Right], of: Account | None
) -> list[Right]:
    """Return the rights that an account lacks; without one, those that the caller lacks."""
    found = await gather_or_cancel(rights.missing_of(installed.api, each, of) for each in required)
    return [right for each in found for right in each]


async def _kinds(installed: Installed) -> Sequence[GroupResource]:
    """Return the kinds whose metrics the adapter lists; pods, if it does not answer."""
    reply = await installed.api.fetch(CUSTOM.path())
    listed = orjson.loads(reply.body).get("resources") or () if reply.status == 200 else ()
    parts = {each["name"].partition("/")[0].partition(".") for each in listed}
    kinds = sorted({PODS, *(GroupResource(group, name) for name, _, group in parts)})
    return [each for each in kinds if each != NAMESPACES][:_MAX_KINDS]
