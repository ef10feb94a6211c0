"""`editctl web`: the review page for a browser on this machine.

The server renders each page from the view model (`editd_client.review`), readable and usable without a
script. `guard` admits a request, `site` has the content of each address, `forms` carries out the forms, and
`pages` writes the HTML. Only `server` imports Starlette and uvicorn, which are the extra `web`.

W1  Every request has the address of this server as its `Host`, and the cookie of a visitor.
W2  A request that changes something comes from a page of this server, by its `Origin`.
W3  Every answer has the policy, and no page has a script, a style or an asset from elsewhere.
W4  A decision is made on the visitor's own connection, so a PIN admits one browser only.
W5  A connection of another user of this machine ends before a byte of it is read.
"""
