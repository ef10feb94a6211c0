"""`editctl review`: the terminal screen for reviewers, drawn by Textual from the view model `review`.

Only `app`, `dialogs` and `panes` import Textual, which is the extra `review`. The others turn the view model
into lines of styled text and keys into requests, and are tested without a terminal.
"""
