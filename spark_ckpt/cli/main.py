"""`spark-ckpt`: one module per verb. Exit status: 0 done, 1 the thing asked about is broken or missing, 2 usage."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from spark_ckpt import __version__
from spark_ckpt.cli.output import Output, TextOutput
from spark_ckpt.errors import CheckpointError, ConfigError

DONE, BROKEN, USAGE = 0, 1, 2
VERBS = ("jar", "conf", "submit", "doctor", "list", "show", "verify", "savepoint", "restore", "gc")


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
    context: list[Output] = [TextOutput()]
    given = list(sys.argv[1:] if arguments is None else arguments)
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
        e.show()
        return e.exit_code
    except click.Abort:
        return BROKEN
    except ConfigError as e:
        context[0].fail(e.kind.value, str(e))
        return USAGE
    except CheckpointError as e:
        context[0].fail(e.kind.value, str(e))
        return BROKEN
    except BrokenPipeError:
        # The reader (`| head`) is gone; without this Python complains once more when it flushes at its end.
        _say_no_more()
        return DONE
    except OSError as e:
        # A full disk behind stdout, a working folder that is gone: of what lies in a storage, storages raise errors of this package.
        where = f"{e.filename}: " if e.filename else ""
        click.echo(f"spark-ckpt: {where}{e.strerror or e}; look at the file that the answer goes to, and at the working folder", err=True)
        _say_no_more()
        return BROKEN


def _say_no_more() -> None:
    """What has not been written is not tried again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    if sys.stdout is None:
        sys.exit("spark-ckpt: standard output is closed; there is nowhere to write the answer to")
    sys.exit(run())


if __name__ == "__main__":
    main()
