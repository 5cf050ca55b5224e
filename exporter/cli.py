"""The command line."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from exporter import __version__, logs
from exporter.catalogue import CatalogueError
from exporter.config import ConfigError
from exporter.config.overlay import FILE_VARIABLE, FLAGS
from exporter.program import Program, Source, read

DESCRIPTION = "Telemetry of every accelerator of this node, whatever the vendor, for Prometheus and OpenTelemetry."
EPILOG = """exit codes: 0 done, 1 nothing found or a problem found, 2 wrong configuration, arguments or address.
Every setting can stand in the file, in the environment (ACCEL_EXPORTER_INTERVALS__NORMAL=10) or behind --set."""
USAGE_ERROR = 2

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code."""
    _fill_standard_descriptors()
    arguments = sys.argv[1:] if argv is None else list(argv)
    parser = _parser()
    # `serve` is what a container's bare entry point means.
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help", "--version")):
        arguments = ["serve", *arguments]
    args = parser.parse_args(arguments)
    if args.command == "version":
        print(f"accel-exporter {__version__} (Python {platform.python_version()})")
        return 0
    if args.command == "healthy":
        # It needs no configuration, and may not fail for one that is being edited.
        from exporter.healthy import healthy

        return healthy(args.pid, ready=args.ready)
    if args.command == "serve":
        # As process 1 of a container it would not be ended by a signal for which it has no handler yet.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        source = _source(args)
        program = read(source)
    except CatalogueError as error:
        print(f"accel-exporter: {error}", file=sys.stderr)
        return USAGE_ERROR
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"accel-exporter: {line}", file=sys.stderr)
        print(f"accel-exporter: {_what_next(args, len(error.problems))}", file=sys.stderr)
        return USAGE_ERROR
    try:
        return _run(args, source, program)
    except BrokenPipeError:
        # A reader such as `head` has seen enough.
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130


def _fill_standard_descriptors() -> None:
    """Who closed 0, 1 or 2 would have sockets take their places, and an error message go to a client."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest that is free is taken: this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _run(args: argparse.Namespace, source: Source, program: Program) -> int:
    settings = program.config.log
    if args.command == "serve":
        logs.configure(settings.level, settings.format)
    else:
        logs.configure("warning" if settings.level == "info" else settings.level, "text")
    for warning in program.warnings:
        log.warning(warning)
    # Imported where needed: `check-config` need not load a web server.
    match args.command:
        case "serve":
            from exporter import serve

            return serve.run(source, program)
        case "once":
            from exporter import once

            return once.once(program, args.format, args.schema, args.wait)
        case "devices":
            from exporter import once

            return once.devices(program, args.format, args.wait)
        case "top":
            from exporter.status import remote, top

            return top.top(program, remote.access(args), args.interval_seconds, once=args.once)
        case "doctor":
            from exporter import doctor

            return doctor.doctor(program, args.format)
        case "mapping":
            from exporter import mapping

            return mapping.mapping(program.catalogues, args.format, args.collector)
        case _:
            collectors = ", ".join(member.spec.name for member in program.members) or "none"
            print(f"the configuration is right; collectors: {collectors}")
            return 0


def _source(args: argparse.Namespace) -> Source:
    given = vars(args)
    flags = {flag: given.get(flag.replace("-", "_")) for flag in FLAGS}
    flags["set"] = given.get("set") or None
    path = args.config or (Path(os.environ[FILE_VARIABLE]) if os.environ.get(FILE_VARIABLE) else None)
    return Source(path, flags, demo=given.get("demo", False))


def _what_next(args: argparse.Namespace, problems: int) -> str:
    """How to try what has been corrected: with the same file and flags."""
    many = "this" if problems == 1 else f"these {problems} problems"
    if args.command == "check-config":
        return f"correct {many}, then run it again"
    given = vars(args)
    again = ["accel-exporter", "check-config", *(["--config", str(args.config)] if args.config else [])]
    for flag in (*FLAGS, "set"):
        values = given.get(flag.replace("-", "_")) or []
        for value in [values] if isinstance(values, str) else values:
            again += [f"--{flag}", value]
    return f"correct {many}, then try the result: {shlex.join(again)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="accel-exporter",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"accel-exporter {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    common = _configuration_flags()

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text.capitalize() + ".", parents=[common])

    serve = add("serve", "read the accelerators and serve /metrics (the default command)")
    serve.add_argument(
        "--demo", action="store_true", help="simulate a node if this host shows no accelerator, and say so"
    )
    once = add("once", "read the accelerators once and print what a scrape would see")
    formats = ("prometheus", "openmetrics", "json", "otlp-json")
    once.add_argument("--format", choices=formats, default="prometheus")
    once.add_argument(
        "--schema",
        choices=("common", "raw", "all"),
        help="which series (default: all; with otlp-json what the configured receiver is sent)",
    )
    devices = add("devices", "list the devices that were found")
    devices.add_argument("--format", choices=("table", "json"), default="table")
    for command in (once, devices):
        command.add_argument(
            "--wait",
            type=_seconds,
            default=1.0,
            metavar="SECONDS",
            help="take a second sample after so long: ratios and rates need it (default: 1)",
        )
    top = add("top", "show devices in the terminal, as they change")
    _access_flags(top)
    top.add_argument(
        "--every",
        dest="interval_seconds",
        type=_positive,
        default=2.0,
        metavar="SECONDS",
        help="how often to look (default: 2)",
    )
    top.add_argument("--once", action="store_true", help="print one frame and end")
    doctor = add("doctor", "tell what was looked for, found and missing, and what to do about it")
    doctor.add_argument("--format", choices=("text", "json"), default="text")
    mapping = add("mapping", "list which raw series feeds which common metric")
    mapping.add_argument("--format", choices=("table", "json"), default="table")
    mapping.add_argument("--collector", default="", metavar="NAME", help="of this collector only")
    add("check-config", "check the configuration and tell all that is wrong with it")
    text = "tell whether the agent that runs here works, whatever its port asks of clients"
    healthy = commands.add_parser("healthy", help=text, description=text.capitalize() + ".")
    healthy.add_argument("--ready", action="store_true", help="whether its first samples are taken")
    healthy.add_argument("--pid", type=int, metavar="PROCESS", help="of several agents this one (default: all)")
    commands.add_parser("version", help="print the version")
    return parser


def _configuration_flags() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(add_help=False)
    group = flags.add_argument_group("configuration")
    group.add_argument("--config", type=Path, metavar="FILE", help="YAML file (docs/configuration.md)")
    for name, flag in FLAGS.items():
        group.add_argument(
            f"--{name}",
            metavar=flag.metavar,
            action="append" if flag.repeatable else "store",
            help=f"{flag.help} ({flag.key})",
        )
    text = "any other setting, such as intervals.slow=30; can be repeated"
    group.add_argument("--set", metavar="KEY=VALUE", action="append", help=text)
    return flags


def _access_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default="", metavar="URL", help="of another agent, such as http://node-1:9859")
    group = parser.add_argument_group("another agent that has a web configuration file, with --url")
    group.add_argument(
        "--ca-file", type=Path, metavar="FILE", help="certificates to trust for https (default: the system's)"
    )
    group.add_argument("--cert-file", type=Path, metavar="FILE", help="a certificate to show, as PEM")
    group.add_argument("--key-file", type=Path, metavar="FILE", help="its key (default: in the same file)")
    group.add_argument(
        "--insecure", action="store_true", help="do not check whose certificate it is: anyone could be answering"
    )
    group.add_argument("--user", default="", metavar="NAME", help="a user there, with --password-file")
    group.add_argument("--password-file", type=Path, metavar="FILE", help="its first line is the user's password")


def _positive(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError("expected 0.1 to 3600 seconds")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 3600:
        raise argparse.ArgumentTypeError("expected 0 to 3600 seconds")
    return value
