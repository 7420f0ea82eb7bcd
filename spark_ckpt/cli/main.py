"""`spark-ckpt`: one module per verb. Exit status: 0 done, 1 the thing asked about is broken or missing, 2 usage; 128 and a signal's number
as shells have it: interrupted, or nobody reads what is printed."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import click

from spark_ckpt import __version__
from spark_ckpt.cli.output import Output, TextOutput, say_no_more, suppress_unwritten, tell
from spark_ckpt.conf.passwords import without_urls_passwords
from spark_ckpt.errors import CheckpointError, ConfigError, printable

DONE, BROKEN, USAGE = 0, 1, 2
NOBODY_READS = 128 + signal.SIGPIPE
_ended_by: int = signal.SIGINT
"""The signal that has interrupted this process."""
VERBS = (
    *("jar", "conf", "submit", "doctor"),
    *("list", "show", "verify", "state"),
    *("checkpoint", "savepoint", "restore", "import", "export", "rescale", "gc"),
)


class Verbs(click.Group):
    """Loads a verb's module when it is called: `spark-ckpt jar` is run by shell scripts and must not wait for the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"spark_ckpt.cli.{cmd_name}_verb")
        command: click.Command = module.command
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="spark-ckpt")
def cli() -> None:
    """Checkpoints of Spark Structured Streaming: enable them, look at them, verify them, clean up after them."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(given)
    except KeyboardInterrupt as e:
        tell(f"\nspark-ckpt: {printable(str(e)) or 'interrupted'}")
        return 128 + _ended_by
    except BrokenPipeError:
        # The reader (`| head`) is gone, and what was found is not known: a verb's own answer is written by its Output.
        say_no_more(sys.stdout)
        return NOBODY_READS
    except OSError as e:
        # A full disk behind stdout, a working folder that is gone: of what lies in a storage, storages raise errors of this package.
        tell(_not_written(e))
        say_no_more(sys.stdout)
        return BROKEN


def _run(given: list[str]) -> int:
    context: list[Output] = [TextOutput()]
    try:
        with cli.make_context("spark-ckpt", given) as ctx:
            ctx.obj = context[0]
            try:
                status = cli.invoke(ctx)
            finally:
                context[0] = ctx.obj
        return status if isinstance(status, int) else DONE
    except click.exceptions.Exit as e:
        return e.exit_code
    except click.ClickException as e:
        said = io.StringIO()
        e.show(said)
        with suppress_unwritten(sys.stderr):
            sys.stderr.writelines(map(without_urls_passwords, said.getvalue().splitlines(keepends=True)))
        return e.exit_code
    except click.Abort:
        return BROKEN
    except CheckpointError as e:
        try:
            context[0].fail(e.kind.value, str(e))
        except OSError as unwritten:
            say_no_more(sys.stdout)
            TextOutput().fail(e.kind.value, str(e))
            if not isinstance(unwritten, BrokenPipeError):
                tell(_not_written(unwritten))
        return USAGE if isinstance(e, ConfigError) else BROKEN


def _not_written(e: OSError) -> str:
    where = f"{e.filename}: " if e.filename else ""
    return f"spark-ckpt: {where}{e.strerror or e}; look at the file that the answer goes to, and at the working folder"


def _interrupt(number: int, _: FrameType | None) -> None:
    global _ended_by
    _ended_by = number
    raise KeyboardInterrupt


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # under nohup the second is ignored
            signal.signal(number, _interrupt)  # what was unpacked on this disk is removed first, as after Ctrl-C
    if sys.stdout is None:
        sys.exit("spark-ckpt: standard output is closed; there is nowhere to write the answer to")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as long as the process; whatever is printed there goes nowhere
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # not every locale has all characters: as stderr does it
    sys.exit(run())


if __name__ == "__main__":
    main()
