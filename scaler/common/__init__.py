"""What several parts of the engine need and none owns: queues of spans, the loop of a process, buffers, effects."""
