"""`python -m documents`: write anew what is generated. `docs/benchmarks.md` and `docs/reliability.md` have commands of their own."""

from __future__ import annotations

from documents import by_line, by_operator, command_line, costs, options, real_time_kills, realtime_costs, seen_by_sinks, transitions
from documents.places import BENCHMARKS, COMMAND_LINE, COMPATIBILITY, GUARANTEES, OPTIONS, PROTOCOL, README, REAL_TIME, SINKS, STATE, TESTS


def main() -> None:
    OPTIONS.write_text(options.render(), encoding="utf-8")
    COMMAND_LINE.write_text(command_line.render(), encoding="utf-8")
    README.write_text(costs.renewed(README.read_text(encoding="utf-8"), BENCHMARKS.read_text(encoding="utf-8")), encoding="utf-8")
    guarantees = seen_by_sinks.renewed(GUARANTEES.read_text(encoding="utf-8"), seen_by_sinks.read(SINKS))
    GUARANTEES.write_text(real_time_kills.renewed(guarantees, by_operator.read(TESTS)), encoding="utf-8")
    STATE.write_text(by_operator.renewed(STATE.read_text(encoding="utf-8"), by_operator.read(TESTS)), encoding="utf-8")
    COMPATIBILITY.write_text(by_line.renewed(COMPATIBILITY.read_text(encoding="utf-8"), by_line.read()), encoding="utf-8")
    REAL_TIME.write_text(realtime_costs.renewed(REAL_TIME.read_text(encoding="utf-8")), encoding="utf-8")
    PROTOCOL.write_text(transitions.renewed(PROTOCOL.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
