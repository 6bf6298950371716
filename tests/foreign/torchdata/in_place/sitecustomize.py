"""Puts fastload.DataLoader in the place of StatefulDataLoader, in each process that the suites start."""

from __future__ import annotations

import torchdata.stateful_dataloader as torchdata

import fastload

torchdata.StatefulDataLoader = fastload.DataLoader
