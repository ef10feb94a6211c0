"""The resident command process: it keeps the modules of `editctl` loaded, and forks for each call.

    entry       the console scripts, which import next to nothing
    routes      the table of the calls that the helper may serve
    state       the state of a process that both sides must share
    channel     the messages between a caller and its fork
    call        the caller's side: hands the call over, and acts for the fork
    helper      the process that listens and forks
    fork        the fork's side: becomes the caller in all that the command can see

The caller opens each connection to a daemon and starts each program itself. So the daemon sees the caller as
its peer, and nothing runs outside of the caller's sandbox. The helper keeps nothing of a call.
"""
