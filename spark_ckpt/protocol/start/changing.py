"""A query whose stateful operators are not those of the checkpoint that it goes on from: which state goes where. Nothing is written.

The start is asked for three times then, and changes nothing in the first two. The first is answered with the checkpoint's small files, and
whoever asks has Spark plan the query as a new one. With what Spark has written for that, operators are matched (`operators.py`), and the
answer is the checkpoint as this query would have it, for Spark to compare. The third goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Checkpoint, Content
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.operators import OPERATORS_OPTION, Matched, Operator, listed, match, replaced, same_for_spark
from spark_ckpt.protocol.start.phases import StartPhase
from spark_ckpt.protocol.start.recovery import GivenUpError
from spark_ckpt.protocol.start.renumbering import operator_of, renumbered
from spark_ckpt.protocol.start.round import Round

Then = Callable[[Checkpoint], list[Instruction]]


class Changing:
    """`matched`: what was found; None: nobody has looked, or it is as Spark has it."""

    def __init__(self, around: Round) -> None:
        self.matched: Matched | None = None
        self._round = around
        self._theirs: tuple[Operator, ...] | None = None
        self._problem = ""
        self._note = ""
        """For people, of what was matched."""

    def look(
        self,
        source: Checkpoint,
        named: str,
        refuse: Callable[[str], list[Instruction]],
        then: Then,
        path: str | None = None,
        choice: bool = True,
    ) -> list[Instruction]:
        """`named`: the source, for people. `refuse`: what follows where a file of it is damaged. `path`: where it lies, if elsewhere.
        `choice`: a person has chosen it; else what Spark itself takes goes on as it is."""
        request = self._round.request
        if request.planned is None and request.compared:
            return then(source)
        files = {name: content for name, content in source.files.items() if not name.startswith("sources/")}

        def fetched() -> list[Instruction]:
            if request.planned is None:
                return self._round.recovery.end(do.Compare(named, source.id.epoch, files, plan=True))
            return self._describe(files, request.planned, lambda mine: self._known(source, named, mine, then, choice))

        return self._round.fetch(files.values(), fetched, refuse, path)

    def forget(self) -> None:
        """Another origin is looked at."""
        self.matched = None
        if self._note in self._round.notes:
            self._round.notes.remove(self._note)

    def applied(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint as the query has it."""
        if self.matched is None:
            return checkpoint
        return renumbered(checkpoint, self.matched, self._round.request.planned or {})

    def _describe(
        self, files: Mapping[str, Content], planned: Mapping[str, bytes], then: Callable[[tuple[Operator, ...]], list[Instruction]]
    ) -> list[Instruction]:
        ask = self._round.recovery.ask

        def theirs(event: ev.OperatorsDescribed) -> list[Instruction]:
            self._theirs, self._problem = event.operators, event.problem
            return ask(StartPhase.DESCRIBING, lambda ticket: do.DescribeOperators(ticket, planned), mine)

        def mine(event: ev.OperatorsDescribed) -> list[Instruction]:
            if event.operators is None:
                raise GivenUpError(ErrorKind.INTERNAL, f"what Spark has planned for this query cannot be read: {event.problem}")
            return then(event.operators)

        of_state = {name: content for name, content in files.items() if operator_of(name) is not None}
        return ask(StartPhase.DESCRIBING, lambda ticket: do.DescribeOperators(ticket, of_state), theirs)

    def _known(self, source: Checkpoint, named: str, mine: tuple[Operator, ...], then: Then, choice: bool) -> list[Instruction]:
        """What is not described, an older Spark's, has to have the same names, and is Spark's to compare."""
        request = self._round.request
        both_known = (self._theirs or not source.snapshots) and (mine or not request.job.operators)
        theirs = self._theirs if both_known else None
        if theirs is None and request.operators.chosen:
            why = self._problem or "it does not hold the files in which Spark says what its operators are"
            raise GivenUpError(ErrorKind.CONFLICT, f"{OPERATORS_OPTION} cannot be applied to {named}: {why}")
        if theirs is None and source.job_known and source.job.operators != request.job.operators:
            said = f"its stateful operators are {names(source.job.operators)}, those of the query {names(request.job.operators)}"
            raise GivenUpError(ErrorKind.CONFLICT, f"{named} does not fit this query: {said}")
        if theirs is None or (not choice and same_for_spark(mine, theirs)):
            return then(source) if request.compared or not choice else self._compare(source, named)
        doubtful = source.job_known and replaced(request.job.operators, source.job.operators)
        matched = match(mine, theirs, request.operators, doubtful)
        if matched.problems:
            raise GivenUpError(ErrorKind.CONFLICT, f"{named} does not fit this query: {'; '.join(matched.problems)}")
        late = [o for o in mine if o.number in matched.new and o.number in request.initial]
        if late:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"{named} does not fit this query: it has no state of the query's {listed(late)}, whose initial state Spark reads in a "
                "query's first epoch only; leave the initial state out, and the operator begins empty",
            )
        if matched.changes:
            self.matched = matched
            self._note = f"the stateful operators are not those of {named}: {'; '.join(changes_text(matched, mine, theirs))}"
            self._round.notes.append(self._note)
        return then(source) if request.compared else self._compare(source, named)

    def _compare(self, source: Checkpoint, named: str) -> list[Instruction]:
        files = {name: content for name, content in source.files.items() if not name.startswith("sources/")}
        changed = self.applied(replace(source, files=files))
        return self._round.recovery.end(do.Compare(named, source.id.epoch, changed.files))


def names(items: Iterable[str]) -> str:
    return ", ".join(items) or "none"


def changes_text(matched: Matched, mine: tuple[Operator, ...], theirs: tuple[Operator, ...]) -> list[str]:
    """What becomes of each, for people."""
    old = {o.number: o for o in theirs}
    lines = [f"{o} goes on from {matched.kept[o.number]}" if o.number in matched.kept else f"{o} begins empty" for o in mine]
    return [*lines, *(f"the state of {old[number]} is dropped" for number in matched.gone)]
