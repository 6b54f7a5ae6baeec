"""Proof that a query is pointwise: the samples of an object depend on the series of that object.

`rules.query.scope` renders the query. Here its syntax tree is walked once; every clause of the
proof is one function, which raises NotPointwise where a construct could mix objects. A construct
that no clause covers is refused.

A subexpression is *selected* if it depends on the matchers of the request, else it is the same in
every query. Two queries are compared: `single` selects one object, `shared` any set of objects.
Only in `shared`, `GroupBy` also has the label of the namespace, for which MARK stands. The proof
covers the samples that have the labels of an object; others are ignored in both results.

A query that fails has no samples at all. Where `shared` fails, each request is queried alone. So
`single` must not fail where `shared` does not: its samples are also in `shared`, except *foreign*
ones, which `or` and `unless` let through for each object that is not selected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import promql_parser as ast

from rules.query import clauses
from rules.query.clauses import MARK, Construct, Labels, NotPointwise, Side, Wanted

_BY = ast.AggModifierType.By
_ON = ast.LabelModifierType.Include
_SETS = frozenset(("and", "or", "unless"))
_CONSTANT = Side(scalar=True)


class Walk:
    """Walks a syntax tree in the order of its text."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.keywords: list[str] = []
        """Operators, aggregations and functions, in the order of the text."""
        self.selections = 0
        """Number of selectors with the matchers of the request."""
        self.values: list[str] = []
        """Values of all matchers."""
        self.marks = 0
        """Number of lists of labels with MARK."""

    def side(self, node: ast.Expr) -> Side:
        """Return what is known of the value of `node`. Raises NotPointwise."""
        match node:
            case ast.ParenExpr():
                return self.side(node.expr)
            case ast.SubqueryExpr():
                return self.side(node.expr)
            case ast.UnaryExpr():
                at = Construct(text="-", place=self._keyword("-"))
                side = self.side(node.expr)
                clauses.fails_alike(at, side, by_name=True)
                return side
            case ast.MatrixSelector():
                return self._selector(node.vector_selector)
            case ast.VectorSelector():
                return self._selector(node)
            case ast.AggregateExpr():
                return self._aggregation(node)
            case ast.Call():
                return self._call(node)
            case ast.BinaryExpr():
                return self._operation(node)
            case _:
                return _CONSTANT

    def labels(self, names: Iterable[str], *, listed: bool) -> Labels:
        """Return a list of labels, and count its MARK."""
        labels = Labels(names=frozenset(names), listed=listed)
        self.marks += labels.has_mark
        return labels

    def _keyword(self, word: str) -> int:
        self.keywords.append(word)
        return len(self.keywords) - 1

    def _selector(self, node: ast.VectorSelector) -> Side:
        matchers = node.matchers.matchers
        self.values += (each.value for each in matchers)
        present = {(each.name, each.value) for each in matchers if each.op == ast.MatchOp.Equal}
        if present.isdisjoint(self.wanted.matchers):
            return Side(named=True)
        clauses.selects_whole_objects(node, present, self.wanted)
        self.selections += 1
        return Side(selected=True, has_namespace=True)

    def _aggregation(self, node: ast.AggregateExpr) -> Side:
        name = str(node.op)
        place = self._keyword(name)
        modifier = node.modifier
        labels = (
            self.labels(modifier.labels, listed=modifier.type == _BY)
            if modifier
            else Labels(names=frozenset(), listed=True)
        )
        at = Construct(text=_aggregation_text(name, modifier, self.wanted), place=place)
        written = "".join(_strings([node.param]))
        if node.param is not None:
            self.side(node.param)
        operand = self.side(node.expr)
        named = labels.keeps("__name__") or written == "__name__"
        if not operand.selected:
            clauses.groups_the_same(at, labels)
            if name in clauses.CHOOSES_SAMPLES:
                return operand
            resource = self.wanted.resource
            anonymous = operand.anonymous or not labels.keeps(resource)
            return Side(anonymous=anonymous and written != resource, named=named)
        clauses.computes_each_object(at, name)
        clauses.keeps_objects(at, labels, self.wanted)
        clauses.writes_no_wanted_label(at, written, self.wanted)
        has_namespace = operand.has_namespace and labels.keeps(self.wanted.namespace)
        return replace(operand, has_namespace=has_namespace, named=operand.foreign and named)

    def _call(self, node: ast.Call) -> Side:
        name = node.func.name
        at = Construct(text=f"{name}()", place=self._keyword(name))
        sides = [self.side(each) for each in node.args]
        scalar = node.func.return_type == ast.ValueType.Scalar
        selected = next((each for each in sides if each.selected), None)
        strings = _strings(node.args)
        if selected is None:
            named = any(each.named for each in sides) or "__name__" in strings
            return Side(scalar=scalar, anonymous=name == "vector", named=named)
        clauses.computes_each_object(at, name)
        writes_label = name in {"label_replace", "label_join"}
        clauses.fails_alike(at, selected, by_name=not writes_label)
        if writes_label:
            clauses.writes_no_wanted_label(at, strings[0], self.wanted)
            # The last argument of label_replace() is a regular expression.
            sources = strings[2:3] if name == "label_replace" else strings[2:]
            clauses.reads_the_same_labels(at, sources, selected, self.wanted)
        elif name.startswith("histogram_"):
            clauses.writes_no_wanted_label(at, "le", self.wanted)
        return replace(selected, scalar=scalar)

    def _operation(self, node: ast.BinaryExpr) -> Side:
        left = self.side(node.lhs)
        operator = str(node.op)
        place = self._keyword(operator)
        right = self.side(node.rhs)
        modifier = node.modifier
        matching = modifier.matching if modifier else None
        labels = self.labels(
            matching.labels if matching else (),
            listed=matching is not None and matching.type == _ON,
        )
        at = Construct(text=_operation_text(operator, modifier, self.wanted), place=place)
        if left.scalar or right.scalar:
            vector = left if right.scalar else right
            clauses.fails_alike(at, vector, by_name=True)
            return vector
        clauses.fills_in_nothing(at, modifier)
        match left.selected, right.selected:
            case False, False:
                clauses.groups_the_same(at, labels)
                return Side(named=left.named or right.named)
            case True, True:
                return self._selected_both(at, node, labels, left, right)
            case _:
                return self._selected_one(at, node, labels, left, right)

    def _selected_both(
        self, at: Construct, node: ast.BinaryExpr, labels: Labels, left: Side, right: Side
    ) -> Side:
        """Return the value of an operation between two selected vectors."""
        operator = str(node.op)
        clauses.matches_objects(at, labels, self.wanted)
        clauses.namespaces_alike(at, labels, self.wanted, left, right, union=operator == "or")
        if operator == "or":
            return replace(
                left, foreign=left.foreign or right.foreign, named=left.named or right.named
            )
        if operator in _SETS:
            return left
        clauses.fails_alike(at, left)
        clauses.fails_alike(at, right)
        clauses.copies_no_wanted_label(at, node.modifier, self.wanted)
        match _many(node):
            case "left":
                return left
            case "right":
                return right
            case _:
                kept = labels.keeps(self.wanted.namespace)
                return replace(left, has_namespace=left.has_namespace and kept)

    def _selected_one(
        self, at: Construct, node: ast.BinaryExpr, labels: Labels, left: Side, right: Side
    ) -> Side:
        """Return the value of an operation between a selected vector and one that is not."""
        operator = str(node.op)
        selected, other = (left, right) if left.selected else (right, left)
        union = replace(selected, foreign=True, named=selected.named or other.named)
        if operator == "or":
            clauses.adds_no_other_objects(at, other, self.wanted)
            if selected is left and other.anonymous:
                return union
            if selected is left:
                clauses.matches_objects(at, labels, self.wanted)
        clauses.groups_the_same(at, labels)
        clauses.matches_the_same(at, labels, selected, self.wanted)
        if operator == "or":
            return union
        if operator not in _SETS:
            clauses.fails_alike(at, selected)
        elif selected is left:
            return selected
        if _many(node) == ("left" if selected is left else "right"):
            clauses.copies_no_wanted_label(at, node.modifier, self.wanted)
            return selected
        copied = (node.modifier.group_labels or ()) if node.modifier else ()
        clauses.matches_objects(at, labels, self.wanted, copied)
        if operator == "unless":
            clauses.adds_no_other_objects(at, other, self.wanted)
            return replace(selected, foreign=True, named=other.named)
        return replace(selected, named=selected.foreign and other.named)


def prove(query: str, tree: ast.Expr, wanted: Wanted, *, namespace: str) -> None:
    """Prove that a query is pointwise, given as text without comments and as syntax tree.

    `namespace` is that of the objects that it selects. Raises NotPointwise.
    """
    walk = Walk(wanted)
    try:
        side = walk.side(tree)
    except NotPointwise as refusal:
        refusal.keywords = tuple(walk.keywords)
        raise
    clauses.selects_result(side, wanted)
    clauses.matches_nothing_else(query, walk.selections, wanted)
    clauses.writes_matchers(query, walk.values, namespace)
    # MARK is also the label of the namespace's matcher.
    clauses.groups_nothing_else(query, walk.marks + (walk.selections if wanted.namespace else 0))


def _aggregation_text(name: str, modifier: ast.AggModifier | None, wanted: Wanted) -> str:
    if modifier is None:
        return name
    kind = "by" if modifier.type == _BY else "without"
    return f"{name} {kind} ({_written(modifier.labels, wanted)})"


def _operation_text(operator: str, modifier: ast.BinModifier | None, wanted: Wanted) -> str:
    matching = modifier.matching if modifier else None
    if matching is None:
        return operator
    kind = "on" if matching.type == _ON else "ignoring"
    return f"{operator} {kind} ({_written(matching.labels, wanted)})"


def _written(labels: Sequence[str], wanted: Wanted) -> str:
    """Return labels as the template has them."""
    if MARK in labels:
        rest = [each for each in labels if each not in {wanted.resource, MARK}]
        labels = ["<<.GroupBy>>", *rest]
    return ", ".join(labels)


def _strings(nodes: Iterable[ast.Expr | None]) -> list[str]:
    """Return the strings among arguments, which may stand in parentheses."""
    strings = []
    for node in nodes:
        while isinstance(node, ast.ParenExpr):
            node = node.expr  # noqa: PLW2901 (unwrapped)
        if isinstance(node, ast.StringLiteral):
            strings.append(node.val)
    return strings


def _many(node: ast.BinaryExpr) -> str:
    """Return the side that may have several samples for one of the other side: left or right."""
    card = node.modifier.card if node.modifier else None
    if card == ast.VectorMatchCardinality.ManyToOne:
        return "left"
    return "right" if card == ast.VectorMatchCardinality.OneToMany else ""
