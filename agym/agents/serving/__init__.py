"""Environments served to other processes and machines, by OpenEnv's protocol: :func:`agym.serve`.

The way of a message, from the network to an environment and back::

    door.py       a connection waits here until its request is complete
    handshake.py  a request becomes a WebSocket, for sessions.py
    http.py       token, origin, endpoints ------> episodes.py ----> places.py ---> envs[i].step
    sessions.py   a WebSocket's questions ------>  one env's use     the free envs

Messages are those of :mod:`agym.agents.openenv.wire`.
"""
