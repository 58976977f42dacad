"""`tidemark consume TOPIC`: committed records, oldest first within each partition, then as they come."""

import argparse
import asyncio
import sys

from tidemark_cli.client import TidemarkClient
from tidemark_cli.commands.produce import _partition_count
from tidemark_cli.failures import EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_cli.outcomes import BrokerRefused, ConsumedRecord
from tidemark_cli.output import Output
from tidemark_cli.targets import find_brokers

HELP = "read records"
PAUSE_SECONDS = 0.05
