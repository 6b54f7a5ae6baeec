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

from rules import syntax
from rules.query import clauses
from rules.query.clauses import MARK, Construct, NotPointwise, Side, Wanted
from rules.syntax import Aggregation, Binary, Call, Expression, LabelList, VectorSelector

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

    def side(self, node: Expression) -> Side:
        """Return what is known of the value of `node`. Raises NotPointwise."""
        match node:
            case syntax.Parentheses() | syntax.Subquery():
                return self.side(node.expression)
            case syntax.Unary():
                at = Construct(text="-", place=self._keyword("-"))
                side = self.side(node.expression)
                clauses.fails_alike(at, side, by_name=True)
                return side
            case syntax.MatrixSelector():
                return self._selector(node.selector)
            case VectorSelector():
                return self._selector(node)
            case Aggregation():
                return self._aggregation(node)
            case Call():
                return self._call(node)
            case Binary():
                return self._operation(node)
            case _:
                return _CONSTANT

    def labels(self, found: LabelList | None, *, default: bool) -> LabelList:
        """Return the labels in parentheses, and count their MARK."""
        labels = found or LabelList(names=(), listed=default)
        self.marks += MARK in labels.names
        return labels

    def _keyword(self, word: str) -> int:
        self.keywords.append(word)
        return len(self.keywords) - 1

    def _selector(self, node: VectorSelector) -> Side:
        self.values += (each.value for each in node.matchers)
        present = {(each.label, each.value) for each in node.matchers if each.operator == "="}
        if present.isdisjoint(self.wanted.matchers):
            return Side(named=True)
        clauses.selects_whole_objects(node, present, self.wanted)
        self.selections += 1
        return Side(selected=True, has_namespace=True)

    def _aggregation(self, node: Aggregation) -> Side:
        name = node.operator
        place = self._keyword(name)
        labels = self.labels(node.labels, default=True)
        at = Construct(text=_text(node, ("by", "without"), self.wanted), place=place)
        written = "".join(_strings(filter(None, (node.parameter,))))
        if node.parameter is not None:
            self.side(node.parameter)
        operand = self.side(node.expression)
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

    def _call(self, node: Call) -> Side:
        name = node.function
        at = Construct(text=f"{name}()", place=self._keyword(name))
        sides = [self.side(each) for each in node.arguments]
        selected = next((each for each in sides if each.selected), None)
        strings = _strings(node.arguments)
        if selected is None:
            named = any(each.named for each in sides) or "__name__" in strings
            return Side(scalar=node.scalar, anonymous=name == "vector", named=named)
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
        return replace(selected, scalar=node.scalar)

    def _operation(self, node: Binary) -> Side:
        left = self.side(node.left)
        place = self._keyword(node.operator)
        right = self.side(node.right)
        labels = self.labels(node.labels, default=False)
        at = Construct(text=_text(node, ("on", "ignoring"), self.wanted), place=place)
        if left.scalar or right.scalar:
            vector = left if right.scalar else right
            clauses.fails_alike(at, vector, by_name=True)
            return vector
        clauses.fills_in_nothing(at, node)
        match left.selected, right.selected:
            case False, False:
                clauses.groups_the_same(at, labels)
                return Side(named=left.named or right.named)
            case True, True:
                return self._selected_both(at, node, labels, left, right)
            case _:
                return self._selected_one(at, node, labels, left, right)

    def _selected_both(
        self, at: Construct, node: Binary, labels: LabelList, left: Side, right: Side
    ) -> Side:
        """Return the value of an operation between two selected vectors."""
        operator = node.operator
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
        clauses.copies_no_wanted_label(at, node, self.wanted)
        match node.many:
            case "left":
                return left
            case "right":
                return right
            case _:
                kept = labels.keeps(self.wanted.namespace)
                return replace(left, has_namespace=left.has_namespace and kept)

    def _selected_one(
        self, at: Construct, node: Binary, labels: LabelList, left: Side, right: Side
    ) -> Side:
        """Return the value of an operation between a selected vector and one that is not."""
        operator = node.operator
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
        if node.many == ("left" if selected is left else "right"):
            clauses.copies_no_wanted_label(at, node, self.wanted)
            return selected
        clauses.matches_objects(at, labels, self.wanted, node.copied)
        if operator == "unless":
            clauses.adds_no_other_objects(at, other, self.wanted)
            return replace(selected, foreign=True, named=other.named)
        return replace(selected, named=selected.foreign and other.named)


def prove(query: str, tree: Expression, wanted: Wanted, *, namespace: str) -> None:
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


def _text(node: Aggregation | Binary, words: tuple[str, str], wanted: Wanted) -> str:
    """Return operator and labels of a node as the template has them.

    `words` are those before labels that stay, and before others.
    """
    if node.labels is None:
        return node.operator
    names: Sequence[str] = node.labels.names
    if MARK in names:
        names = ["<<.GroupBy>>", *(each for each in names if each not in {wanted.resource, MARK})]
    word = words[0] if node.labels.listed else words[1]
    return f"{node.operator} {word} ({', '.join(names)})"


def _strings(nodes: Iterable[Expression]) -> list[str]:
    """Return the strings among arguments, which may stand in parentheses."""
    return [each.value for each in map(syntax.bare, nodes) if isinstance(each, syntax.String)]
