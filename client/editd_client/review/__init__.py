"""The view model of the screens for reviewers: rows, words and requests for the terminal and the browser.

Pure: takes results of the protocol and returns those. Both faces have the same text and the same choices
because both take them from here. Knows neither Textual nor HTML, and computes
nothing that the daemon could return.
"""
