"""A hundred ordinary prompts without a secret, in the manner of commit messages and requests to agents.

Many have the words, the hashes and the code that stand beside secrets elsewhere.
"""

PROMPTS = """\
Fix the token refresh: the token is refreshed twice
Rename total() to sum_of(), and require the password field; for the token: see RFC 6750
Commit 9f2e8a1b3c4d5e6f708192a3b4c5d6e7f8091a2b broke the build, revert it
UUID 550e8400-e29b-41d4-a716-446655440000 is not found in /var/lib/app; secret = None in tests
Use sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 as the digest
api_key parameter: document it as string
The password is missing in the docs
Add a --password option to the login command, and read it from standard input
Hide the value of a prompt with hide_input=True in the error message
Parser: token = self.next_token() must not skip the comment
Move parse_token from lexer.py to tokens.py
Drop support for Python 3.7 and 3.8
The access token is required for every request to /api/v2/users
Rotate the signing key once a month
Fix the link in the error message of unicode_literals
auth: the secret is read from the environment, not from config.yaml
tests: api_key = os.environ["API_KEY"]
Make token: str | None = None the default of the constructor
Why does test_token_expiry fail with AssertionError: 3600 != 3599?
password = getpass.getpass() blocks in the tests, mock it
Bump actions/checkout from 3.5.2 to 4.1.7
Update the lock file: cryptography 42.0.5, requests 2.32.3
The secret is out: we support Windows now
Remove the unused passphrase parameter of load_key()
Let token be the first argument of verify()
In settings.py, SECRET_KEY = config("SECRET_KEY") has to stay
Use secrets.token_hex(16) in place of uuid4().hex
Do not log the Authorization: header
Send the header Authorization: Bearer <token>
Cookie: set SameSite=Lax by default
Fix the cookie path of nested apps
Show the commit 61b8b057 in the changelog
Refactor the password validator into three functions
A password: at least 12 characters, one digit
The passcode is optional, and the password was never checked
Add type hints to auth/token.py
Write the docs of the secret-scanning workflow
git revert HEAD~3 and push to origin/main
Replace MD5 5d41402abc4b2a76b9719d911017c592 by SHA-256 in the manifest
ci: run the tests with PYTHONHASHSEED=0
Pass --token-file instead of --token
Set the environment variable GITHUB_TOKEN in the workflow: ${{ secrets.GITHUB_TOKEN }}
export API_TOKEN=$(vault read -field=value secret/app)
Document DATABASE_URL: postgres://localhost:5432/app
The URL https://example.org:8443/login?next=/home returns 404
ssh git@github.com:example/project.git does not work behind the proxy
Rename the class TokenBucket to RateLimiter
The token bucket has capacity 100 and refills 10 per second
Fix off-by-one in tokenizer: tokens[1:] drops the first token
The max_tokens: 4096 setting is ignored
Lower max_tokens=8192 to 2048 and temperature to 0.2
Count tokens with tiktoken, not with len(text) // 4
Explain what is_secret_like does
translate("Your password is wrong") into German
The label "Password:" is cut in the dialog
Add the placeholder "Enter password" to the input
Make the api key column wider in the admin table
Check that private_key is a PEM file before loading it
Load private_key from ~/.ssh/id_ed25519 by default
Delete keys/dev.pem from the repository
key: value pairs must be sorted in the YAML output
Sort by primary_key, then by created_at
Add a foreign key to orders.customer_id
KeyError: 'access_token' in oauth.py line 214
TypeError: unsupported operand type(s) for +: 'int' and 'str'
The response is {"token": null, "expires_in": 3600}
token: Optional[str] = None
def login(user: str, password: str) -> Session: needs a docstring
const token = await getToken(); is awaited twice
if (password !== confirmPassword) show the error below the field
let secret = crypto.randomBytes(32)
interface Props { apiKey: string; accessToken?: string }
<input type="password" name="password" autocomplete="current-password">
SELECT password_hash FROM users WHERE id = 42
The column password_hash is VARCHAR(60), make it TEXT
ALTER TABLE sessions ADD COLUMN token_hash CHAR(64)
Fix typo in README
Merge branch 'feature/token-refresh' into develop
Release 2.14.0
Speed up startup by importing re lazily
Increase the timeout to 30s and retry 3 times
The build takes 14 minutes on main; cache ~/.cargo
Why is the p99 latency of /search 850 ms?
Use Decimal in place of float for prices
Split utils.py into paths.py, text.py and dates.py
The bearer of the ticket is not the buyer
Basic auth is deprecated, document the alternative
Digest of the week: 3 bugs, 12 features
Make it pass: all 42 tests of tests/test_api.py
pass: the placeholder statement is not needed here
The compass = north setting is ignored
Undo the change of app.py from yesterday 16:42
Create a Dockerfile with python:3.12-slim and EXPOSE 8080
docker run -u 1000:1000 -p 8080:80 example/app:1.4
Call the phone number +49 30 1234567 in the example
The color #1f2937 is too dark on the dashboard
Line 120: `token = token or ""` hides the bug
Does the license allow that we copy src/vendor/jwt.c?
Set up Prettier with printWidth 100, and format all files
Write a poem about the secret life of tokens
""".splitlines()
