"""The contenders: one room each, ourselves among them. Each runs the same no-op steps as its own documents recommend.

This is the only place besides `ops.broker` and `ops.blackboard` that knows drivers, because some contenders are little else.
A worker process of a contender imports its room and nothing else of ours but `ops.bench.peers.peer`.
"""
