"""``python -m fairgate doctor`` looks at this environment; ``python -m fairgate top URL`` watches a running program."""

from __future__ import annotations

import argparse
import sys

from .doctor import doctor
from .top import top


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fairgate", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="whether everything that the package needs is there and works")
    watch = commands.add_parser("top", help="agents, queues and rates of a program that called fairgate.enable_prometheus()")
    watch.add_argument("url", nargs="?", default="http://127.0.0.1:9464/metrics")
    watch.add_argument("--interval", type=float, default=1.0, help="seconds between two looks [default: 1]")
    watch.add_argument("--count", type=int, default=None, help="how many looks; for ever where not given")
    arguments = parser.parse_args()
    if arguments.command == "doctor":
        return doctor()
    try:
        return top(arguments.url, arguments.interval, arguments.count)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
