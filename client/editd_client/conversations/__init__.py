"""The actions that ask something: one conversation for each, the same at the screen, the page and `editctl`.

A conversation sends the requests of its action, and has its questions and its sentences. A face has an asker
(`asker`), which shows a question, or has its answer from a form or an option. Knows no face.
"""
