"""Tables of starts: from long chains, and early and late in the life of a stream with short epochs."""

from __future__ import annotations

from benchmarks import chains, restart_pieces, short_epochs
from benchmarks.cells import Table, spreads
from benchmarks.figures import Figures


def pieces_table(figures: Figures) -> Table:
    cases = sorted(figures.cases(restart_pieces.EXPERIMENT), key=lambda case: case.size)
    metrics = tuple((f"{name}_ms", 1.0, 0) for name in (*restart_pieces.PIECES, "restart"))
    rows = [(case.system, f"{case.size:,}", f"{figures.rounds(case)}", *spreads(figures, case, *metrics)) for case in cases]
    about = (
        "From a new process, after a kill, to the end of the first epoch, on a machine that has no file of the one before; stock on the "
        "local disk finds its own. JVM: until Spark's context begins, the Python that starts it included. Query: until its own thread "
        "begins, with Spark's analysis before it is started and after. "
        "Claim: until the coordinator has claimed the stream and read its checkpoint. Files: until those of the driver are in the folder. "
        "Plan: until the first epoch's tasks begin. Fetch and load: how long they waited for the files of their stores, and for the engine "
        "that opens them, over two processors. Of stock Spark plan holds what it reads of its logs, and load what it fetches: nobody can "
        "see these apart. Flink has as much state in RocksDB, in two subtasks, and a checkpoint each second: JVM is until its program "
        "begins, session until its job runs, load until all tasks have their state, plan until its first checkpoint begins (up to a "
        "second, by chance), epoch until that is complete."
    )
    columns = ("system", "MB of state", "rounds", "JVM ms", "session", "query", "claim", "files", "plan", "fetch", "load", "epoch", "all")
    return Table("A restart in pieces", about, columns, rows)


def chain_table(figures: Figures) -> Table:
    metrics = (("first_epoch_ms", 1, 0), ("empty_ms", 1, 0), ("beyond_ms", 1, 0))
    asked = (("first_epoch_requests", 1, 0), ("first_epoch_get_requests", 1, 0), ("empty_requests", 1, 0))
    read = (("first_epoch_read_bytes", 1e-6, 2), ("empty_read_bytes", 1e-6, 2), ("state_bytes", 1e-6, 2))
    rows = [
        (case.system, f"{case.partitions}", f"{case.size}", f"{figures.rounds(case)}", *spreads(figures, case, *metrics, *asked, *read))
        for case in figures.cases(chains.EXPERIMENT)
    ]
    about = (
        f"Each partition has a changelog of each epoch ({chains.ROWS:,} rows) and no full snapshot. From the query's start to the end of "
        "its first epoch, in a new JVM that has no file of the state; beside it the same on nothing. Requests until then are from the "
        "server's log; MB read are all that came from the server until the application's end, headers among it, as the proxy counts them."
    )
    columns = ("system", "partitions", "changelogs", "rounds", "first epoch ms", "on nothing ms", "difference ms")
    counted = ("requests", "GET", "requests on nothing", "MB read", "MB read on nothing", "MB of state")
    return Table("A start from long chains", about, (*columns, *counted), rows)


def short_epochs_table(figures: Figures) -> Table:
    times = (("empty_ms", 1, 0), ("early_ms", 1, 0), ("late_ms", 1, 0), ("early_epoch_ms", 1, 0), ("late_epoch_ms", 1, 0))
    asked = (("early_get_requests", 1, 0), ("late_get_requests", 1, 0))
    sizes = (("early_metadata_bytes", 1e-3, 1), ("late_metadata_bytes", 1e-3, 1), ("put_bytes", 1e-3, 1))
    rows = [
        (case.system, f"{case.size:,}", f"{figures.rounds(case)}", *spreads(figures, case, *times, *asked, *sizes))
        for case in figures.cases(short_epochs.EXPERIMENT)
    ]
    about = (
        f"{short_epochs.ROWS} rows an epoch over 1,000 keys in {short_epochs.PARTITIONS} partitions, as fast as they come. Restarted on "
        f"an empty disk after a {short_epochs.EARLY}th of the epochs (early) and after all of them (late): from the query's start to the "
        f"end of its first epoch. Epoch and `_metadata`: of the {short_epochs.LAST} epochs before. KB put: of all epochs, in the mean."
    )
    columns = ("system", "epochs", "rounds", "start on nothing ms", "early ms", "late ms", "epoch early ms", "late ms", "GET early", "late")
    return Table("Short epochs", about, (*columns, "_metadata early KB", "late KB", "KB put an epoch"), rows)
