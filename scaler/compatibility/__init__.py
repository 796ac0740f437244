"""Names and arguments of the original that programs use, and what they mean here.

Classes of the product take the original's arguments, too: `ClientArguments` and `ClusterArguments` say what each does.
Modules that programs of it import from are where it has them: `scaler.client.object_reference`,
`scaler.worker.agent.processor.processor`.
"""
