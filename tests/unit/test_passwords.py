"""What a person has typed, in messages: without passwords, and else as it was."""

from __future__ import annotations

import pytest

from spark_ckpt.conf.passwords import without_urls_passwords


@pytest.mark.parametrize(
    "typed",
    [
        "[https://acct.blob.core.windows.net/c?sv=1&sig=SECRET]",
        "a,https://acct/c?sig=SECRET",
        "s3a://b/p,https://k/p?X-Amz-Signature=SECRET",
        "1s3://KEY:SECRET",
        "--az:/c/p?sig=SECRET",
        "--S3A:KEY:SECRET",
        "s3n:KEY:SECRET",
        "[s3:KEY:SECRET]",
        "<s3:KEY:SECRET>",
        "[az:/c?sig=SECRET]",
        "az:c?sig=SECRET",
        "--storage=s3:/KEY:SECRET",
        "x=KEY:SECRET@b",
        "'KEY:SEC(RET@b'",
        "(:SECRET@b",
        "--KEY:SECRET@b",
        "file:///data abfss://c@acct.dfs.core.windows.net/p?sig=SECRET",
        "s3:/b s3://KEY:SECRET",
        "s3://b s3://KEY:SECRET",
        "az:/c abfss://c@acct/p?sig=SECRET",
        "--az:/c,https://KEY:SECRET",
        "abfss:/c@acct/p?sig=SECRET",
        "s3://KEY:SEC RET@b",
        "s3://KEY:SEC,RET@b",
    ],
)
def test_a_secret_is_hidden(typed: str) -> None:
    said = without_urls_passwords(f"No such thing: {typed}")
    assert not {"SECRET", "SEC", "RET"} & {said[at : at + n] for at in range(len(said)) for n in (3, 6)}, said
    assert said.startswith("No such thing: ")


@pytest.mark.parametrize(
    "typed",
    [
        "/data/run-1:2@3/x",
        "'/lake/dt=2026-01-01T00:00:00@v2'",
        "file:/data/x",
        "(me@example.com)",
        "a:b c@d",
        "…a:b@c",
        "2026-11-27T10:00:00",
    ],
)
def test_what_is_none_is_shown(typed: str) -> None:
    assert without_urls_passwords(f"Path {typed} does not exist") == f"Path {typed} does not exist"


@pytest.mark.parametrize("unit", ["=a:", "spark.a-b=x:y,", "2026-11-27T10:00:00,", "a", "'a:", "1.", "-", "@", "a:/", "[az:", "az:c "])
@pytest.mark.parametrize("end", ["", "@", " @"])
def test_an_argument_as_long_as_a_system_takes_is_read_once(unit: str, end: str) -> None:
    """A search that begins anew at each letter takes hours, and the test's time is over."""
    without_urls_passwords(unit * (120_000 // len(unit)) + end)
