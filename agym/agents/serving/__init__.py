"""Environments served to other processes and machines, by OpenEnv's protocol: :func:`agym.serve`.

The way of a message, from the network to an environment and back::

    agym.core.web   limits of connections, HTTP and WebSockets (uvicorn, websockets)
    http.py         token, origin, endpoints  ---->  episodes.py ----> slots.py ---> envs[i].step
    sessions.py     messages of a WebSocket   ---->  one env's use     the free envs

Messages are those of :mod:`agym.agents.openenv.wire`.
"""
