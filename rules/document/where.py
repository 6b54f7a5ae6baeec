"""Position of a rule, or of another part of a rules file, and of the keys in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rules.document import yaml
from rules.document.schema import SchemaPath
from rules.document.yaml import Node, Scalar
from rules.findings import Finding, Place, State, in_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Position of a part of a file and of its keys."""

    file: str
    path: str
    """Path of the part in the file, such as `rules[3]`."""
    nodes: Mapping[str, Node]
    """Path below the part ("" for itself, `name.matches`) -> the node there."""

    def __str__(self) -> str:
        """Return the place as messages show it: `rules[3] (rules.yaml:12)`."""
        return str(self.place)

    @property
    def place(self) -> Place:
        """Return the position of the part itself."""
        part = self.nodes[""]
        return Place(path=self.path, file=self.file, line=part.line, column=part.column)

    def finding(
        self,
        reason: str,
        fact: str,
        cure: str = "",
        *,
        cause: str = "",
        named: bool = True,
        state: State = State.FAILURE,
        lasting: bool = False,
    ) -> Finding:
        """Build a finding about the part; unless `named`, `fact` itself says which part it is."""
        return Finding(
            state=state,
            reason=reason,
            subject=str(self) if named else "",
            fact=fact,
            cause=cause,
            cure=cure,
            where=self.place,
            lasting=lasting,
        )

    def problem(
        self, state: State, path: str, message: str, *, offset: int | None = None
    ) -> Finding:
        """Build a problem at `path` below the part, or at the nearest path above with a node.

        `offset` is the character of the text at `path` to which the problem points.
        """
        known = path
        while known and known not in self.nodes:
            known = known.rpartition(".")[0]
        node = self.nodes[known]
        line, column = node.line, node.column
        if offset is not None and isinstance(node, Scalar):
            line, column = node.position(offset)
        place = yaml.join(self.path, path)
        return in_file(state, message, path=place, file=self.file, line=line, column=column)

    def warning(self, path: str, message: str, *, offset: int | None = None) -> Finding:
        """Build a warning as `problem` does."""
        return self.problem(State.WARNING, path, message, offset=offset)


def where_of(record: SchemaPath, node: Node) -> Where:
    """Return the position of `node`, which `record` describes."""
    return Where(file=record.file, path=record.path, nodes={"": node, **record.nodes})
