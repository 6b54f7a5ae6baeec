"""Clauses of the proof that a query is pointwise; `pointwise` walks the query and applies them.

Each clause is one function. It raises NotPointwise for a construct that could mix objects.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from rules.syntax import Binary, LabelList, VectorSelector
from rules.template import Template
from rules.template.analysis import FieldUse

MARK = "scope_namespace_of_group_by"
"""Stands for the label of the namespace where a template writes `GroupBy`."""
_WITH_MARK = re.compile(rf",\s*{MARK}\b")
_REQUEST = ("LabelMatchers", "LabelValuesByName")
"""Fields of a template's data that depend on the objects of the request."""

POINTWISE = frozenset(
    """
    avg count count_values group max min quantile stddev stdvar sum

    abs acos acosh asin asinh atan atanh avg_over_time ceil changes clamp clamp_max clamp_min cos
    cosh count_over_time day_of_month day_of_week day_of_year days_in_month deg delta deriv
    double_exponential_smoothing exp first_over_time floor histogram_avg histogram_count
    histogram_fraction histogram_quantile histogram_stddev histogram_stdvar histogram_sum hour
    idelta increase irate label_join label_replace last_over_time ln log10 log2 mad_over_time
    max_over_time min_over_time minute month predict_linear present_over_time quantile_over_time rad
    rate resets round sgn sin sinh sqrt stddev_over_time stdvar_over_time sum_over_time tan tanh
    timestamp year
    """.split()  # noqa: SIM905 (shorter)
)
"""Aggregations that do not depend on the order of the samples of a group, and functions that
compute each sample from one series, or from the buckets of one histogram.

`sort` is not among them. It orders equal values of one object differently among more samples, which
changes what `topk` chooses, and the last digit of a sum of fractions.
"""
CHOOSES_SAMPLES = frozenset(("topk", "bottomk", "limitk", "limit_ratio"))
"""Aggregations that return some of their samples, with all labels, whatever `by` says."""
_INSTEAD = {
    "topk": "use max by (<<.GroupBy>>)",
    "bottomk": "use min by (<<.GroupBy>>)",
    "sort": "remove it, because the order of samples has no effect",
    "sort_desc": "remove it, because the order of samples has no effect",
    "absent": "use onMissing for objects without samples",
    "absent_over_time": "use onMissing for objects without samples",
    "scalar": "match the two sides on (<<.GroupBy>>)",
}
"""What to write instead of a function or an aggregation that is not pointwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What tells the objects apart that one query covers."""

    resource: str
    """Label with the object's name."""
    namespace: str
    """Label with its namespace; empty if all objects are of one namespace, or of none."""
    matchers: frozenset[tuple[str, str]]
    """Label and value of the matchers that select an object in the rendered query."""

    @property
    def labels(self) -> frozenset[str]:
        """The labels that tell objects apart."""
        return frozenset(filter(None, (self.resource, self.namespace)))


class NotPointwise(Exception):
    """A construct that could mix objects."""

    def __init__(
        self,
        construct: str,
        reason: str,
        advice: str,
        *,
        place: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(f"`{construct}` {reason}" if construct else reason)
        self.advice = advice
        self.offset = offset
        """Position in the template's source, if it is known already."""
        self.place = place
        """Index of its keyword, counted in the order of the text; None without one."""
        self.keywords: tuple[str, ...] = ()
        """The keywords up to there, and perhaps more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What is known of the value of a subexpression."""

    selected: bool = False
    """Whether it depends on the objects of the request."""
    has_namespace: bool = False
    """Whether its samples have the label of the namespace in `single`, too; in `shared` they do."""
    scalar: bool = False
    """Whether it is a number or a string, not a vector."""
    anonymous: bool = False
    """Whether no sample has the label of the resource. Known only if it is not selected."""
    foreign: bool = False
    """Whether a selected side may have samples of no selected object, and `single` more of them."""
    named: bool = False
    """Whether samples may have names of metrics; if it is selected, whether foreign ones may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Construct:
    """An operator, aggregation or function in the query."""

    text: str
    """As messages show it."""
    place: int
    """Index of its keyword, counted in the order of the text."""

    def mixes(self, reason: str, advice: str) -> NotPointwise:
        """Return the error that says what the construct does, and what to write instead."""
        return NotPointwise(self.text, reason, advice, place=self.place)


def selects_whole_objects(
    node: VectorSelector, present: Collection[tuple[str, str]], wanted: Wanted
) -> None:
    """Refuse a selector that has some matchers of the request but not all."""
    if not wanted.matchers.issubset(present):
        raise NotPointwise(
            node.name or "{}",
            "has only some of the matchers of the request",
            "separate <<.LabelMatchers>> from other matchers by commas",
        )


def computes_each_object(at: Construct, name: str) -> None:
    """Refuse functions and aggregations that may combine objects, and unknown ones."""
    if name not in POINTWISE:
        reason = "may depend on the series of all objects that the query selects"
        raise at.mixes(reason, _INSTEAD.get(name, ""))


def _shared(labels: LabelList, namespace: str) -> LabelList:
    """Return labels as the shared query has them."""
    names = (namespace if each == MARK else each for each in labels.names)
    return replace(labels, names=tuple(names))


def keeps_objects(at: Construct, labels: LabelList, wanted: Wanted) -> None:
    """Refuse aggregations over objects: each result must belong to one."""
    shared = _shared(labels, wanted.namespace)
    dropped = sorted(label for label in wanted.labels if not shared.keeps(label))
    if dropped:
        raise at.mixes(
            f"drops the label {' and '.join(dropped)}, and so combines several objects",
            "aggregate by (<<.GroupBy>>)",
        )


def groups_the_same(at: Construct, labels: LabelList) -> None:
    """Refuse `GroupBy` where series of other namespaces take part, which it would separate."""
    if MARK in labels.names:
        raise at.mixes(
            "uses <<.GroupBy>> for series that <<.LabelMatchers>> does not select, so one object "
            "is computed from several namespaces",
            "add {<<.LabelMatchers>>} to each selector",
        )


def writes_no_wanted_label(at: Construct, label: str, wanted: Wanted) -> None:
    """Refuse to change a label that tells objects apart."""
    if label in wanted.labels:
        advice = f"write another label, or map {label} to no resource"
        raise at.mixes(f"changes the label {label}, which names the object", advice)


def reads_the_same_labels(
    at: Construct, sources: Iterable[str], side: Side, wanted: Wanted
) -> None:
    """Refuse to copy the label of the namespace where only the shared query has it."""
    if wanted.namespace and wanted.namespace in sources and not side.has_namespace:
        raise at.mixes(
            f"reads the label {wanted.namespace}, which its argument has only in shared queries",
            f"aggregate by (<<.GroupBy>>,{wanted.namespace})",
        )


def matches_objects(
    at: Construct, labels: LabelList, wanted: Wanted, copied: Collection[str] = ()
) -> None:
    """Refuse operations that could match a sample of one object with another's.

    `copied` are the labels that the result takes from the side that is selected.
    """
    shared = _shared(labels, wanted.namespace)
    missing = sorted(
        label for label in wanted.labels if not shared.keeps(label) and label not in copied
    )
    if missing:
        raise at.mixes(
            f"does not match on the label {' and '.join(missing)}, and so may join two objects",
            "match on (<<.GroupBy>>)",
        )


def namespaces_alike(
    at: Construct, labels: LabelList, wanted: Wanted, left: Side, right: Side, *, union: bool
) -> None:
    """Refuse to match on the namespace if only one side has it in the single query."""
    compared = union or labels.keeps(wanted.namespace)
    if wanted.namespace and compared and left.has_namespace != right.has_namespace:
        raise at.mixes(
            f"has the label {wanted.namespace} on one side only, unless the query is shared",
            "aggregate both sides by (<<.GroupBy>>)",
        )


def matches_the_same(at: Construct, labels: LabelList, selected: Side, wanted: Wanted) -> None:
    """Refuse to match on the namespace with other series if the single query dropped it."""
    if wanted.namespace and labels.keeps(wanted.namespace) and not selected.has_namespace:
        raise at.mixes(
            f"matches on the label {wanted.namespace}, which one side has only in shared queries",
            f"aggregate by (<<.GroupBy>>,{wanted.namespace})",
        )


def adds_no_other_objects(at: Construct, other: Side, wanted: Wanted) -> None:
    """Refuse samples that may be of objects with this name in other namespaces."""
    if wanted.namespace and not other.anonymous:
        raise at.mixes(
            "adds series that <<.LabelMatchers>> does not select, which may be of an object with "
            "the same name in another namespace",
            "add {<<.LabelMatchers>>} to each selector",
        )


def fails_alike(at: Construct, side: Side, *, by_name: bool = False) -> None:
    """Refuse what fails for duplicate label sets if they may be of foreign samples.

    With `by_name`, only samples that differ by nothing but the name become duplicates.
    """
    if side.selected and (side.named if by_name else side.foreign):
        raise at.mixes(
            "fails for duplicate series, which may be series that <<.LabelMatchers>> does not "
            "select and that `or` or `unless` leaves for some requests only",
            "add {<<.LabelMatchers>>} to each selector, or apply `or` and `unless` last",
        )


def copies_no_wanted_label(at: Construct, node: Binary, wanted: Wanted) -> None:
    """Refuse to replace a label that tells objects apart by that of another series."""
    copied = sorted(wanted.labels.intersection(node.copied))
    if copied:
        text = " and ".join(copied)
        advice = f"remove {text} from group_left or group_right"
        raise at.mixes(f"copies the label {text}, which names the object", advice)


def fills_in_nothing(at: Construct, node: Binary) -> None:
    """Refuse `fill`, which adds samples where one side has none."""
    if node.fills:
        raise at.mixes("fills in samples, perhaps of other objects", "set onMissing")


def selects_result(side: Side, wanted: Wanted) -> None:
    """Refuse a result without matchers: it has objects of the same name in other namespaces."""
    if wanted.namespace and not side.selected:
        raise NotPointwise(
            "",
            "no selector has <<.LabelMatchers>>, so one object is computed from several namespaces",
            "add {<<.LabelMatchers>>} to each selector",
        )


def matches_nothing_else(query: str, selections: int, wanted: Wanted) -> None:
    """Refuse what the request chose in other places than the matchers of a selector.

    `selections` is the number of selectors with these matchers.
    """
    if any(query.count(value) != selections for _, value in wanted.matchers):
        raise NotPointwise(
            "<<.LabelMatchers>>",
            "is not only in the braces of selectors",
            "remove it from strings and from alternatives",
        )


def writes_matchers(query: str, values: Sequence[str], namespace: str) -> None:
    """Refuse the namespace of the request in other places than the values of matchers.

    A namespace may be called `pod`, and the query may then name a label that it should not.
    """
    if query.count(namespace) != sum(value.count(namespace) for value in values):
        raise NotPointwise(
            "<<index .LabelValuesByName ...>>",
            "is not only in matchers",
            "select by <<.LabelMatchers>>",
        )


def groups_nothing_else(text: str, groups: int) -> None:
    """Refuse `GroupBy` in other places than the labels of an aggregation or of a match.

    `groups` is the number of places where MARK is allowed.
    """
    if text.count(MARK) != groups:
        raise NotPointwise(
            "<<.GroupBy>>", "is not only in by (...) and on (...)", "write the labels instead"
        )


def reads_nothing_of_names(query: Template, namespace: str) -> None:
    """Refuse a template that computes with the objects of the request.

    It may write out the namespace, which is the same for all objects; `namespace` is its label.
    """
    for read in query.reads(_REQUEST):
        if read.key != namespace:
            raise _computes(read)


def reads_nothing_of_objects(query: Template) -> None:
    """Refuse a template that computes with the names or the namespace of the request."""
    for read in query.reads(_REQUEST):
        raise _computes(read)


def _computes(read: FieldUse) -> NotPointwise:
    text = f'index {read.name} "{read.key}"' if read.key is not None else read.name
    return NotPointwise(
        f"<<{text}>>",
        "lets the template depend on the objects of the request",
        "select by <<.LabelMatchers>>",
        offset=read.offset,
    )


def renders_alike(shared: str, single: str) -> None:
    """Refuse a template that differs by more than the label of the namespace in `GroupBy`."""
    if _WITH_MARK.sub("", shared) != _WITH_MARK.sub("", single):
        raise NotPointwise(
            "<<.GroupBySlice>>",
            "renders another query with the label of the namespace",
            "use <<.GroupBy>>",
        )
