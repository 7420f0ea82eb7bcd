"""Statistics, targets, tables and the page, from made-up figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cells import spread
from benchmarks.figures import Case, Estimate, Figures, Summary
from benchmarks.finalise import GROWN
from benchmarks.judging import OTHERS_PERCENT, Met
from benchmarks.judging import ROUNDS as ENOUGH
from benchmarks.machine import QUIET
from benchmarks.page import render
from benchmarks.plots import draw
from benchmarks.restore import PLAIN
from benchmarks.systems import System
from benchmarks.tables import tables, targets_table
from benchmarks.targets import INTERVAL, LONG, NO_FLOOR, TARGETS, verdicts

ABOUT = {
    "time": "2026-11-21 10:00 UTC",
    "processors": "2 x a processor",
    "memory_gib": 8,
    "kernel": "6",
    "python": "3.11",
    "java": "17",
    "pyspark": "4.3.0",
    "latency_ms": 20,
    "load_before": 0.1,
    "took_s": 540,
}


def case(system: System, partitions: int, rows: int = 20_000, experiment: str = "aggregation") -> Case:
    return Case(experiment, system.value, partitions, rows)


def in_rounds(found: Figures, rounds: int = ENOUGH) -> Figures:
    """All that was measured was so in so many rounds."""
    for one in {c for c, _, _ in found if c.experiment != "restore"}:
        found.add(one, "start_ms", [1] * rounds)
    return found


@pytest.fixture
def figures() -> Figures:
    found = Figures(ABOUT)
    medians = {
        System.STOCK_LOCAL: 16_500,
        System.SAME_LOCAL: 16_000,
        System.SAME_TUNED: 20_000,
        System.FLOOR: 2_500,
        System.FILE: 2_600,
        System.S3: 2_800,
    }
    for system, median in medians.items():
        found.add(case(system, 200), "epoch_ms", [median - 20, median, median + 10])
    found.add(case(System.S3, 200), "list_requests", [0, 0])
    found.add(case(System.S3, 200), "put_bytes", [1_300_000])
    found.add(case(System.S3, 200), "checkpointed_bytes", [900_000, 1_100_000])
    found.add(Case("finalise", "coordinator", 10_000, GROWN), "finalise_ms", [600.0])
    found.add(Case("finalise", "coordinator", 100_000, GROWN), "finalise_ms", [6_300.0])
    found.add(Case("restore", PLAIN, 20, 1000), "restore_ms", [2_000])
    found.add(Case("restore", System.S3.value, 20, 1000), "restore_ms", [2_200])
    found.add(Case("restore", System.S3.value, 20, 1000), "state_bytes", [1_000_000_000])
    return in_rounds(found)


def verdict(figures: Figures, what: str) -> tuple[str, Met]:
    found = [v for v in verdicts(figures) if v.what == what]
    assert len(found) == 1
    return found[0].measured, found[0].met


def test_a_summary_is_the_median_and_the_quartiles() -> None:
    assert Summary.of([5, 1, 3]) == Summary(3, 1, 5, 3)
    assert Summary.of([1, 2, 3, 4, 100]) == Summary(3, 2, 4, 5)
    with pytest.raises(ValueError, match="no values"):
        Summary.of([])


def test_what_was_not_measured_has_no_ratio(figures: Figures) -> None:
    assert figures.ratio("epoch_ms", case(System.S3, 200), case(System.FLOOR, 200)) == 2800 / 2500
    assert figures.ratio("epoch_ms", case(System.S3, 200), case(System.FLOOR, 20)) is None
    assert figures.ratio("epoch_ms", case(System.S3, 200), case(System.S3_INTERVAL, 200)) is None
    figures.add(case(System.S3_INTERVAL, 200), "epoch_ms", [0])
    assert figures.ratio("epoch_ms", case(System.S3, 200), case(System.S3_INTERVAL, 200)) is None


def test_the_file_holds_every_value(figures: Figures, tmp_path: Path) -> None:
    figures.notes.append("something was left out")
    figures.write(tmp_path / "results" / "short.json")
    again = Figures.read(tmp_path / "results" / "short.json")
    assert list(again) == list(figures)
    assert (again.about, again.notes) == (figures.about, figures.notes)


def test_targets_compare_medians_of_one_run(figures: Figures) -> None:
    assert verdict(figures, "epoch on s3://, 200 partitions, over the floor") == ("1.12 x", Met.YES)
    assert verdict(figures, "stock on tuned S3A, same settings, over s3://, 200 partitions") == ("7.14 x", Met.YES)
    assert verdict(figures, "epoch on s3:// over stock on local disk, same settings, 200 partitions") == ("0.17 x", Met.YES)
    assert verdict(figures, "epoch on file:// over the floor, 200 partitions") == ("1.04 x", Met.YES)
    assert verdict(figures, "bytes to S3 over changelogs and new SSTs, 200 partitions") == ("1.30 x", Met.NO)
    assert verdict(figures, f"finalise, 10,000 partitions, {GROWN} handles each") == ("600 ms", Met.NO)
    assert verdict(figures, "finalise, 100,000 partitions over 10,000: linear") == ("10.50 x", Met.YES)
    restored = verdict(figures, "plain boto3's time over ours, restoring on a fresh machine")
    assert restored == ("0.91 x (1000 MB, tries: 1 and 1), 1 round of at least 3", Met.FEW)
    bound = "stock's time over plain boto3's: what is possible there"
    assert verdict(figures, bound) == ("not measured", Met.OPEN)
    plain = next(c for c in figures.cases("restore") if c.system == "plain boto3")
    figures.add(replace(plain, system=System.SAME_TUNED.value), "restore_ms", [2.5 * figures.values(plain, "restore_ms")[0]])
    assert verdict(figures, bound) == ("2.50 x (1000 MB, tries: 1 and 1)", Met.OPEN)
    assert verdict(figures, "epoch on file:// over the floor, 20 partitions") == ("not measured", Met.OPEN)


def test_requests_of_few_epochs_are_told_and_not_judged(figures: Figures) -> None:
    what = "S3 requests an epoch, 200 partitions: 4 + executors"
    figures.add(case(System.S3, 200), "requests", [9.0])
    assert verdict(figures, what) == ("not measured: 9.00 over 3 epochs of at least 100", Met.OPEN)
    other, long = case(System.S3_INTERVAL, 200, 1000, "requests"), case(System.S3, 200, 1000, "requests")
    figures.add(other, "requests", [0.5])
    figures.add(other, "epoch_ms", [1] * LONG)
    assert verdict(figures, what)[1] is Met.OPEN, "another system's"
    figures.add(long, "requests", [4.2])
    figures.add(long, "list_requests", [0])
    figures.add(long, "epoch_ms", [1] * LONG)
    assert verdict(figures, what) == ("4.20 (over 100 epochs)", Met.YES)
    assert verdict(figures, "LIST requests an epoch, 200 partitions") == ("0.00 (over 100 epochs)", Met.YES)
    two = case(System.S3_CLUSTER, 20, 1000, "requests")
    figures.add(two, "requests", [5.5])
    figures.add(two, "epoch_ms", [1] * LONG)
    assert verdict(figures, "the same with two executors") == ("5.50 (over 100 epochs)", Met.YES)


def test_a_ratio_near_its_limit_needs_little_spread() -> None:
    what = "epoch on s3://, 200 partitions, over the floor"
    for spread_ms, met in ((0, Met.YES), (2, Met.YES), (40, Met.NOISY)):
        found = Figures(ABOUT)
        for system, median in ((System.S3, 1140), (System.FLOOR, 1000)):
            found.add(case(system, 200), "epoch_ms", [median - spread_ms, median, median, median, median + spread_ms] * 2)
            found.add(case(system, 200), "epoch_ms", [median - spread_ms, median + spread_ms] * 5)
        in_rounds(found)
        assert verdict(found, what)[1] is met, spread_ms
        assert verdict(found, what)[0].startswith("1.14 x")


@pytest.mark.parametrize(
    ("rounds", "told", "met"),
    [(1, "1.12 x, 1 round of at least 3", Met.FEW), (2, "1.12 x, 2 rounds of at least 3", Met.FEW), (3, "1.12 x", Met.YES)],
)
def test_times_are_judged_by_three_rounds(rounds: int, told: str, met: Met) -> None:
    found = Figures(ABOUT)
    for system, median in ((System.S3, 1120), (System.FLOOR, 1000)):
        found.add(case(system, 200), "epoch_ms", [median] * 20)  # many epochs of one round are one round
    in_rounds(found, rounds)
    assert verdict(found, "epoch on s3://, 200 partitions, over the floor") == (told, met)


def test_the_system_with_the_fewest_rounds_counts() -> None:
    found = Figures(ABOUT)
    for system, rounds in ((System.S3, 3), (System.FLOOR, 2)):
        found.add(case(system, 20), "end_to_end_ms", [10] * 9)
        found.add(case(system, 20), "start_ms", [1] * rounds)
    what = "checkpoint end to end on s3:// beyond the floor's, 20 partitions"
    assert verdict(found, what) == ("0.0 ms, 2 rounds of at least 3", Met.FEW)


def test_what_is_counted_is_judged_by_one_round(figures: Figures) -> None:
    counted = Case("finalise", "coordinator", 10_000, GROWN)
    figures.forget(lambda c: c == counted)
    figures.add(counted, "metadata_bytes", [2_000_000])
    figures.add(counted, "memory_bytes", [200_000_000])
    assert verdict(figures, f"_metadata, 10,000 partitions, {GROWN} handles each") == ("2.0 MB", Met.NO)
    assert verdict(figures, f"memory of the coordinator, 10,000 partitions, {GROWN} handles each") == ("200.0 MB", Met.YES)


def test_of_few_rounds_a_profile_is_shown_where_the_limit_is_missed() -> None:
    found = Figures(ABOUT)
    for system, ms in ((System.S3, 1300), (System.FILE, 1050), (System.FLOOR, 1000)):
        found.add(case(system, 200), "epoch_ms", [ms])
    [profile] = [table for table in tables(found) if table.title.startswith("Profile")]
    assert profile.about.endswith(": epoch on s3://, 200 partitions, over the floor.")


def test_times_of_a_busy_machine_are_no_answer_and_counts_are(figures: Figures) -> None:
    for load, met in ((2 * QUIET, Met.YES), (2 * QUIET + 0.01, Met.NOISY)):
        figures.about["load_before"] = load
        assert verdict(figures, "stock on tuned S3A, same settings, over s3://, 200 partitions")[1] is met
        assert verdict(figures, "bytes to S3 over changelogs and new SSTs, 200 partitions")[1] is Met.NO
    assert verdict(figures, "stock on tuned S3A, same settings, over s3://, 200 partitions")[0].startswith("7.14 x, 7.")
    figures.about |= {"processor_count": 4}
    assert verdict(figures, "stock on tuned S3A, same settings, over s3://, 200 partitions")[1] is Met.YES


def test_what_is_measured_again_on_a_busy_machine_leaves_the_others_as_they_were(figures: Figures) -> None:
    others, again = "stock on tuned S3A, same settings, over s3://, 200 partitions", "finalise, 100,000 partitions over 10,000: linear"
    figures.about["loads"] = {"finalise": 2 * QUIET + 0.01}
    assert [verdict(figures, what)[1] for what in (others, again)] == [Met.YES, Met.NOISY]
    figures.about |= {"loads": {"finalise": 0.1}, "load_before": 2 * QUIET + 0.01}
    assert [verdict(figures, what)[1] for what in (others, again)] == [Met.NOISY, Met.YES]


def test_times_beside_busy_others_are_no_answer(figures: Figures) -> None:
    what = "stock on tuned S3A, same settings, over s3://, 200 partitions"
    for percent, met in ((OTHERS_PERCENT, Met.YES), (3 * OTHERS_PERCENT, Met.NOISY)):
        figures.add(case(System.S3, 200), "elsewhere_percent", [percent])
        assert verdict(figures, what)[1] is met
    assert verdict(figures, what)[0].endswith("; others had 50 % of the machine beside spark-ckpt, s3://"), "the median of both turns"
    assert verdict(figures, "bytes to S3 over changelogs and new SSTs, 200 partitions")[1] is Met.NO


def test_an_interval_is_judged_by_completed_checkpoints_and_by_means_too() -> None:
    median, mean = "epoch on s3:// every 10 s over the floor, 200 partitions", "the same, means instead of medians"
    ours, floor = case(System.S3_INTERVAL, 200, experiment=INTERVAL), case(System.FLOOR, 200, experiment=INTERVAL)
    found = Figures(ABOUT)
    found.add(floor, "epoch_ms", [1000] * 30)
    found.add(ours, "epoch_ms", [1000] * 24 + [2000] * 6)
    found.add(ours, "end_to_end_ms", [500] * 2)
    in_rounds(found)
    assert verdict(found, median) == ("not measured: 2 completed checkpoints of at least 3", Met.OPEN)
    found.add(ours, "end_to_end_ms", [500])
    assert verdict(found, median) == ("1.00 x (3 checkpoints in 30 epochs)", Met.YES)
    assert verdict(found, mean) == ("1.20 x (3 checkpoints in 30 epochs)", Met.NO)
    found.add(floor, "epoch_ms", [1000])
    assert verdict(found, median) == ("not measured: 30 epochs against 31", Met.OPEN)


def test_an_estimate_is_narrower_with_more_values() -> None:
    few, many = (Estimate.median([90, 95, 100, 105, 110] * n) for n in (1, 25))
    assert few.value == many.value == 100
    assert few.low < many.low < 100 < many.high < few.high
    assert Estimate.median([7, 9]) == Estimate(8, 7, 9)
    assert Estimate.mean([1, 3]) == Estimate(2, 1, 3)
    assert Estimate.mean([5.0] * 9) == Estimate(5, 5, 5)
    assert Estimate(4, 2, 6).over(Estimate(2, 1, 4)) == Estimate(2, 0.5, 6)
    assert Estimate(4, 2, 6).beyond(Estimate(2, 1, 4)) == Estimate(2, -2, 5)


def test_a_suggested_setting_has_to_carry_a_tenth() -> None:
    found = Figures(ABOUT)
    for system, ms in ((System.S3, 1000), (System.S3_VALIDATES, 1090), (System.S3_BYPASSES, 1300)):
        for partitions in (20, 200):
            found.add(case(system, partitions, experiment="settings"), "epoch_ms", [ms] * 9)
    in_rounds(found)
    what = "epoch on s3:// with {} as Spark has it, over one as the plugin sets it, {} partitions"
    assert verdict(found, what.format("commitValidation", 200)) == ("1.09 x", Met.NO)
    assert verdict(found, what.format("bypassMergeThreshold", 200)) == ("1.30 x", Met.YES)
    assert verdict(found, what.format("commitValidation", 20)) == ("1.09 x", Met.OPEN)


def test_no_target_is_met_by_nothing() -> None:
    assert {v.met for v in verdicts(Figures())} == {Met.OPEN}
    assert len({t.what for t in TARGETS}) == len(TARGETS)


def test_tables_have_ratios_against_the_floor_and_the_local_disk(figures: Figures) -> None:
    found = {table.title: table for table in tables(figures)}
    profiles = {title for title in found if title.startswith("Profile of ")}
    assert set(found) - profiles == {"Targets", "Aggregation", "Finalise in the coordinator", "Restore on a fresh machine"}
    rows = [dict(zip(found["Aggregation"].columns, row, strict=True)) for row in found["Aggregation"].rows]
    shown = (System.STOCK_LOCAL, System.SAME_LOCAL, System.SAME_TUNED, System.FLOOR, System.FILE, System.S3)
    assert [row["system"] for row in rows] == [s.value for s in shown]
    ours = rows[-1]
    assert (ours["epoch ms"], ours["epochs"]) == ("2,800 (2,780 - 2,810)", "3")
    assert (ours["x floor"], ours["x local"], ours["x same"]) == ("1.12", "0.17", "0.17")
    restored = [dict(zip(found["Restore on a fresh machine"].columns, r, strict=True)) for r in found["Restore on a fresh machine"].rows]
    assert [(r["system"], r["MB/s"], r["x plain"]) for r in restored] == [(PLAIN, "500", "1.00"), (System.S3.value, "455", "1.10")]


def test_a_part_shows_the_targets_that_it_measured(figures: Figures) -> None:
    assert len(targets_table(figures).rows) == len(TARGETS)
    assert {row[2] for row in targets_table(figures, everything=False).rows}.isdisjoint({"not measured"})


def test_a_value_without_spread_stands_alone() -> None:
    assert spread(Summary.of([7.0])) == "7"
    assert spread(Summary.of([2, 2, 2])) == "2"
    assert spread(Summary.of([1_234_567]), 1e-6, 2) == "1.23"
    assert spread(None) == ""


def test_the_page_shows_targets_that_were_missed(figures: Figures, tmp_path: Path) -> None:
    figures.notes.append("spark-ckpt, every 10 s was left out: no such option\nmore")
    plots = draw(figures, tmp_path / "benchmarks" / "results", "short")
    assert [p.name for p in plots] == ["short-epochs.svg", "short-restore.svg", "short-finalise.svg"]
    page = render([("short", figures, plots)], tmp_path / "docs" / "benchmarks.md")
    assert "![short-epochs](../benchmarks/results/short-epochs.svg)" in page
    assert "| bytes to S3 over changelogs and new SSTs, 200 partitions | at most 1.20 x | 1.30 x | **no** |" in page
    assert "- spark-ckpt, every 10 s was left out: no such option\n" in page
    assert targets_table(figures).rows[0][3] == "yes"


def test_plots_of_the_same_figures_are_the_same_files(figures: Figures, tmp_path: Path) -> None:
    first, second = draw(figures, tmp_path / "1", "short"), draw(figures, tmp_path / "2", "short")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_what_is_faster_than_the_floor_has_no_ratio_to_it() -> None:
    what = "epoch on s3://, 200 partitions, over the floor"
    for ours, told, cell in (
        ([1600, 1610, 1620], f"not measured: 0.67 x: {NO_FLOOR}", "no floor"),
        ([2300, 2390, 2420], "1.00 x", "1.00"),
    ):
        found = Figures(ABOUT)
        found.add(case(System.FLOOR, 200), "epoch_ms", [2390, 2400, 2410])
        found.add(case(System.S3, 200), "epoch_ms", ours)
        in_rounds(found)
        assert verdict(found, what) == (told, Met.OPEN if "not" in told else Met.YES)
        table = next(t for t in tables(found) if t.title == "Aggregation")
        assert dict(zip(table.columns, table.rows[-1], strict=True))["x floor"] == cell


def test_a_target_that_is_missed_has_its_profile_beside_it(figures: Figures) -> None:
    slow = case(System.FLOOR, 200)
    figures.add(slow, "phase_addBatch_ms", [2_300])
    figures.add(case(System.SAME_LOCAL, 200), "phase_addBatch_ms", [15_000])
    assert not [t for t in tables(figures) if t.title == "Profile of time: aggregation, 200 partitions, 20,000 rows"]
    figures.add(slow, "epoch_ms", [5_000] * 5)
    found = next(
        t for t in tables(figures) if t.title == "Profile of time: aggregation, 200 partitions, 20,000 rows" and "stock" in t.about
    )
    assert "the floor over stock on local disk, same settings, 200 partitions" in found.about
    assert found.columns == ("", System.SAME_LOCAL.value, System.SAME_TUNED.value, System.FLOOR.value, System.S3.value)
    assert ("phase addBatch, ms", "15,000.0", "", "2,300.0", "") in found.rows
    bytes_put = next(t for t in tables(figures) if "bytes to S3 over changelogs" in t.about)
    assert bytes_put.rows == [("put, MB", "1.300"), ("checkpointed, MB", "1.000")]


def test_every_target_that_can_be_missed_has_a_profile() -> None:
    assert {t.what for t in TARGETS if t.limit is not None and t.profile is None} == set()
    assert all(t.profile.metrics for t in TARGETS if t.profile)
