"""Texts without any secret: hashes, identifiers, encoded pictures, prose, code, logs, numbers, addresses."""

import random
import uuid
from base64 import b64encode

from tests.text.shapes import ALNUM, HEX, UPPER, URL

PROSE = [
    "The password is kept elsewhere.",
    "Basic authentication is deprecated; bearer securities were issued in 1987.",
    "Basic information: none. The token: unknown is used.",
    "Reset your password: click the link below.",
    "Password: required, at least 12 characters, with a digit.",
    "A secret ingredient: cinnamon. The key: patience.",
    "Tokens: 1200 in, 300 out. max_tokens=4096, input_tokens: 17",
    "The secret to success is hard work.",
    "Authorization: required for every request of this service.",
    "Cookie: a small text that a site keeps in your browser.",
    "Please enter your API key, or press Enter to skip it.",
    "The access token was rejected by the server.",
    "Enter PIN; the secret was shared by both parties.",
    "He passed the passage with a passport and no passenger.",
    "The keyboard has 104 keys; the monkey took the donkey.",
    "Our cookie policy: we use cookies to improve your experience.",
    "Bearer of good news, Basic Instinct, bearer bonds and basic English.",
    "No credentials: the service is open to everyone.",
    "token usage was 12,345 for gpt-4o-mini-2024-07-18",
    "sk-learn is scikit-learn; see sklearn-contrib-lightning.",
    "the model claude-sonnet-4-20250514 answered in 3.2 s",
    "error: invalid password for user ann",
    "error: missing token in request to /v1/items",
    "what is your secret?",
    "Authentication failed: token expired at 2026-01-02T03:04:05Z",
    "It is a token of my esteem: flowers.",
    "Ask for the pass: all visitors need one.",
    "test_password_is_hidden passed, test_tokens failed",
    "secret: none, password: none, token: null",
    "The signature = the name at the end of a letter.",
    "key = value, name = other, sort_key = date, primary_key = id",
    "public_key: the half that may be known",
    "password_policy: strict, token_type: bearer, secret_name: db-main",
    "session: started, sessions: 3, session_name: analysis.ipynb",
    "He said: the passphrase is long, the pass is steep.",
    "authorization code flow, token endpoint, refresh token rotation",
]
CODE = [
    "token = get_token()",
    "def login(user: str, password: str) -> Token:",
    "password = getpass.getpass()",
    'api_key = os.environ["OPENAI_API_KEY"]',
    "api_key=api_key, token=token, password=self.password",
    "client = OpenAI(api_key=settings.openai_api_key)",
    "self.token = token",
    "if token is None: raise ValueError('no token')",
    "tokens = tokenizer.encode(text)",
    "for token in tokens: count += 1",
    "password: ${DB_PASSWORD}",
    "api_key: <your key>",
    'token: "{{ secrets.TOKEN }}"',
    "export TOKEN=$(cat token.txt)",
    "headers = {'Authorization': f'Bearer {token}'}",
    "Authorization: Bearer <token>",
    "Authorization: Bearer $TOKEN",
    "secret_key = secrets.token_hex(32)",
    "assert response.cookies == {}",
    "const token = await auth.getToken();",
    "password: z.string().min(8)",
    "@dataclass\nclass Token:\n    kind: str\n    value: int",
    "SELECT token, password FROM users WHERE id = 3",
    "token: Optional[str] = None",
    "let key = map.keys().next();",
    "passwd: Password, secret: Secret, auth: Auth",
    "parser.add_argument('--token', help='the token')",
    "run --password-file secrets/db.txt --token-limit 4000",
    "re_compile_with_flags(pattern, re_IGNORECASE)",
    "test_tokens_are_counted_per_model_and_step",
    "pk_constraint_of_orders_table, sk_buff_clone_function",
    "npm_config_cache_directory_location=/tmp/npm",
    "key-value-store, key-combination-handler",
    "secret_manager_service_account_name",
    "from secrets import token_urlsafe",
    '{"type": "object", "properties": {"password": {"type": "string"}}}',
    '{"input_tokens": 12, "output_tokens": 7, "token": 3}',
    '{"finish_reason": "stop", "key": "value", "author": "ann", "keys": ["a", "b"]}',
    "cookies={'theme': theme}",
    "Cookie: <cookies>",
    "password=None, token=None, secret=True",
    "x = a.b.c if tokens[0] == '=' else d",
    "raise AuthError(f'token {name!r} unknown')",
    "PASSWORD_MIN_LENGTH = 12",
    "token_count: 17",
]
WORDS = [
    *("the", "model", "reads", "each", "row", "and", "writes", "a", "label", "of"),
    *("it", "where", "people", "check", "what", "they", "see", "then", "answer", "yes"),
    *("or", "no", "while", "table", "key", "token", "password", "secret", "value", "number"),
    *("answer", "question", "result", "total", "report", "page", "author", "monkey", "passage", "basic"),
]


def harmless(seed=1):
    """Return 1,000 texts."""
    chance = random.Random(seed)
    makers = [_git, _uuid, _image, _number, _address, _sentence, _log, _path, _names, _base64, _hexdump, _table, _sha]
    makers.append(_place)
    made = [*PROSE, *CODE]
    while len(made) < 1000:
        made.append(makers[len(made) % len(makers)](chance))
    return made


def _some(chance, alphabet, count):
    return "".join(chance.choice(alphabet) for _ in range(count))


def _git(chance):
    sha = _some(chance, HEX, chance.choice([7, 12, 40]))
    return chance.choice(["commit {}", "at {}", "{} Merge branch 'x'", "HEAD is now at {}", "index {}..100644"]).format(
        sha
    )


def _sha(chance):
    digest = _some(chance, HEX, chance.choice([32, 64, 128]))
    return chance.choice(["sha256:{}", "md5 = {}", "digest: {}", '"fingerprint": "{}"', "{}  setup.tar.gz"]).format(
        digest
    )


def _uuid(chance):
    made = str(uuid.UUID(int=chance.getrandbits(128), version=4))
    return chance.choice(["{}", "id={}", "request {} took 3 ms", '"execution_id": "{}"', "/items/{}/edit"]).format(made)


def _image(chance):
    data = b64encode(b"\x89PNG\r\n\x1a\n" + chance.randbytes(chance.choice([300, 3000]))).decode()
    return f"data:image/png;base64,{data}"


def _base64(chance):
    return f'{{"type": "image", "data": "{b64encode(chance.randbytes(600)).decode()}"}}'


def _number(chance):
    return f"{chance.uniform(-1e6, 1e6):,.{chance.randrange(6)}f} of {chance.randrange(10**12)} ({chance.random():.3%})"


def _address(chance):
    path = "/".join(_some(chance, ALNUM.lower(), 8) for _ in range(3))
    return chance.choice(
        [
            "https://example.com/{}?page=3&sort=key&q=token+count#part-2",
            "see https://docs.example.org/{}.html#authorization",
            "http://localhost:8888/lab/tree/{}",
            "https://example.com:8443/{}/@ann/status",
            "git@github.com:{}.git",
            "mailto:ann@example.com?subject={}",
            "s3://bucket/{}",
            "file:///home/ann/{}",
        ]
    ).format(path)


def _sentence(chance):
    words = " ".join(chance.choice(WORDS) for _ in range(chance.randrange(5, 30)))
    return f"{words.capitalize()}: {chance.choice(WORDS)} {chance.choice(WORDS)}, {chance.choice(WORDS)}."


def _log(chance):
    where = chance.choice(["auth", "tokens", "cookie", "passes", "keys"])
    second, word, number, took = chance.randrange(60), chance.choice(WORDS), chance.randrange(999), chance.randrange(99)
    return f"2026-01-02T03:04:{second:02d}Z INFO {where}: {word} {number} in {took} ms"


def _path(chance):
    name, place = "_".join(chance.choice(WORDS) for _ in range(2)), chance.randrange(9)
    return f"/usr/lib/python3.1{place}/site-packages/{name}/tokens-{place}.py:{chance.randrange(999)}"


def _place(chance):
    """Return where something secret is, which is no secret."""
    folder, name = _some(chance, ALNUM.lower(), 9), f"{chance.choice(WORDS)}{chance.randrange(99)}"
    path = chance.choice(["/home/ann/{}/{}.json", "~/.{}/{}.pem", "/run/secrets/{}/{}", "C:\\Users\\{}\\{}.txt"])
    told = ["PWD={}", "credentials: {}", "--credentials {}", "password='{}'", '{{"secret": "{}"}}', "export AUTH={}"]
    return chance.choice(told).format(path.format(folder, name))


def _names(chance):
    made = "_".join(chance.choice(WORDS) for _ in range(4))
    return chance.choice(
        ["{}", "{}()", "self.{}", "{} = 3", "'{}'", "test_{}", "exec_01k8" + _some(chance, UPPER, 20).lower()]
    ).format(made)


def _hexdump(chance):
    return " ".join(_some(chance, HEX, 4) for _ in range(8))


def _table(chance):
    rows = [f"{chance.choice(WORDS):10} {chance.randrange(10**6):>8} {_some(chance, URL, 11)}" for _ in range(3)]
    return "\n".join(["name          count id", *rows])
