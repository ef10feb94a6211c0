"""The interface of edit tools: a dialect with its tools, a call with its arguments, and the files of a call.

A dialect is found by its entry point, in any installed distribution: see `dialect_registry`. A tool takes a
call with the original system's argument names. It reads and changes files through `ToolApi`, and returns an
answer in the words of that system. It never touches the disk or the history.
"""
