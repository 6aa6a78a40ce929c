#!/usr/bin/env python3
"""Writes fixtures/events/events.tfevents with TensorBoard's own writer (PyPI tensorboard 2.21.0, protobuf 7.36.2, setuptools<81):
three scalars, whose tags, steps and values test_events.c writes again.

  python make_events.py          # makes the fixture
  python make_events.py FILE     # prints what TensorBoard reads in an event file
"""
import glob, os, shutil, sys, tempfile
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

SCALARS = [(1, "loss_metrics/global_avg_loss", 8.25), (300, "grad_norm", 0.1), (70000, "validation_metrics/loss", -2.5)]

if len(sys.argv) > 1:
    for event in LegacyEventFileLoader(sys.argv[1]).Load():
        if event.HasField("file_version"):
            print("version", event.file_version)
        for value in event.summary.value:
            print(event.step, value.tag, value.simple_value)
    sys.exit()
with tempfile.TemporaryDirectory() as folder:
    writer = EventFileWriter(folder)
    for step, tag, value in SCALARS:
        summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])
        writer.add_event(event_pb2.Event(wall_time=1700000000.5, step=step, summary=summary))
    writer.close()
    here = os.path.dirname(os.path.abspath(__file__))
    shutil.copy(glob.glob(folder + "/*")[0], os.path.join(here, "..", "fixtures", "events", "events.tfevents"))
