"""The view model of the screens for reviewers: their rows, their words, and the requests of each key.

Pure: takes results of the protocol and returns rows, words and prepared requests. The terminal and the
browser have the same text and the same choices because both take them from here. Knows neither Textual nor
HTML, and computes nothing that the daemon could return.
"""
