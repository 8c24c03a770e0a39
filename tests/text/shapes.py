"""Credentials of many issuers, in the texts in which they turn up; made up here from parts: no file holds one."""

import random
import string
from base64 import b64encode

ALNUM = string.ascii_letters + string.digits
URL = ALNUM + "-_"
UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits
HEX = "0123456789abcdef"

MARKED = [
    # issuer, mark, alphabet, length
    ("AWS key id", "AK" + "IA", UPPER, 16),
    ("AWS temporary id", "AS" + "IA", UPPER, 16),
    ("AWS Bedrock", "AB" + "SK", ALNUM, 100),
    ("Google API", "AI" + "za", URL, 35),
    ("Google OAuth", "ya" + "29.", URL, 60),
    ("Google client secret", "GOC" + "SPX-", URL, 28),
    ("Google refresh", "1/" + "/0", URL, 60),
    ("Alibaba", "LT" + "AI", ALNUM, 20),
    ("Tencent", "AK" + "ID", ALNUM, 32),
    ("Yandex", "AQ" + "VN", URL, 36),
    ("DigitalOcean", "dop" + "_v1_", HEX, 64),
    ("DigitalOcean OAuth", "doo" + "_v1_", HEX, 64),
    ("Heroku", "HR" + "KU-", URL, 60),
    ("Render", "rnd" + "_", ALNUM, 28),
    ("Netlify", "nfp" + "_", ALNUM, 36),
    ("Fly", "fm2" + "_", ALNUM, 120),
    ("Supabase", "sbp" + "_", HEX, 40),
    ("Supabase secret", "sb_" + "secret_", URL, 31),
    ("PlanetScale", "pscale" + "_tkn_", URL, 43),
    ("Databricks", "da" + "pi", HEX, 32),
    ("Tailscale", "tskey" + "-auth-", ALNUM, 40),
    ("Vault", "hv" + "s.", URL, 90),
    ("Vault batch", "hv" + "b.", URL, 120),
    ("Doppler", "dp." + "pt.", ALNUM, 43),
    ("Pulumi", "pu" + "l-", HEX, 40),
    ("Dynatrace", "dt0" + "c01.", UPPER, 24),
    ("1Password", "ops" + "_eyJ", ALNUM, 200),
    ("age", "AGE-SECRET" + "-KEY-1", UPPER, 58),
    ("OpenAI", "sk" + "-", ALNUM, 48),
    ("OpenAI project", "sk" + "-proj-", URL, 120),
    ("OpenAI service", "sk" + "-svcacct-", URL, 100),
    ("Anthropic", "sk" + "-ant-api03-", URL, 95),
    ("OpenRouter", "sk" + "-or-v1-", HEX, 64),
    ("DeepSeek", "sk" + "-", HEX, 32),
    ("ElevenLabs", "sk" + "_", HEX, 48),
    ("Groq", "gs" + "k_", ALNUM, 52),
    ("xAI", "xa" + "i-", ALNUM, 80),
    ("Perplexity", "ppl" + "x-", ALNUM, 48),
    ("NVIDIA", "nv" + "api-", URL, 64),
    ("Replicate", "r8" + "_", ALNUM, 37),
    ("Fireworks", "fw" + "_", ALNUM, 24),
    ("Hugging Face", "hf" + "_", ALNUM, 34),
    ("Hugging Face org", "api" + "_org_", ALNUM, 34),
    ("Cerebras", "cs" + "k-", LOWER, 48),
    ("Tavily", "tv" + "ly-", ALNUM, 32),
    ("Firecrawl", "f" + "c-", HEX, 32),
    ("E2B", "e2" + "b_", HEX, 40),
    ("RunPod", "rp" + "a_", UPPER, 42),
    ("Jina", "ji" + "na_", ALNUM, 60),
    ("Pinecone", "pc" + "sk_", ALNUM, 66),
    ("LangSmith", "lsv" + "2_pt_", HEX, 32),
    ("Langfuse", "sk" + "-lf-", HEX, 32),
    ("Voyage", "p" + "a-", URL, 43),
    ("GitHub", "gh" + "p_", ALNUM, 36),
    ("GitHub OAuth", "gh" + "o_", ALNUM, 36),
    ("GitHub server", "gh" + "s_", ALNUM, 36),
    ("GitHub fine", "github" + "_pat_", ALNUM, 82),
    ("GitLab", "gl" + "pat-", URL, 20),
    ("GitLab deploy", "gl" + "dt-", URL, 20),
    ("GitLab runner", "gl" + "rt-", URL, 20),
    ("GitLab trigger", "gl" + "ptt-", HEX, 40),
    ("Atlassian", "ATA" + "TT3xFfGF0", URL, 150),
    ("Bitbucket", "AT" + "BB", ALNUM, 32),
    ("npm", "np" + "m_", ALNUM, 36),
    ("RubyGems", "ruby" + "gems_", HEX, 48),
    ("PyPI", "py" + "pi-AgEIcHlwaS5vcmc", URL, 80),
    ("Docker", "dckr" + "_pat_", URL, 27),
    ("NuGet", "oy" + "2", LOWER, 43),
    ("crates.io", "ci" + "o", ALNUM, 32),
    ("Clojars", "CLO" + "JARS_", HEX, 60),
    ("Artifactory", "AK" + "Cp", ALNUM, 69),
    ("Buildkite", "bk" + "ua_", HEX, 40),
    ("CircleCI", "CCI" + "PAT_", ALNUM, 50),
    ("Sonar", "sq" + "u_", HEX, 40),
    ("Sentry", "sntr" + "yu_", HEX, 64),
    ("PostHog", "ph" + "x_", ALNUM, 43),
    ("Sourcegraph", "sg" + "p_", HEX, 40),
    ("Postman", "PM" + "AK-", HEX, 59),
    ("Typeform", "tf" + "p_", URL, 59),
    ("ReadMe", "rd" + "me_", LOWER, 70),
    ("Linear", "lin" + "_api_", ALNUM, 40),
    ("Figma", "fi" + "gd_", URL, 40),
    ("Notion", "nt" + "n_", ALNUM, 46),
    ("Notion old", "secret" + "_", ALNUM, 43),
    ("HubSpot", "pat" + "-na1-", HEX, 32),
    ("Contentful", "CF" + "PAT-", URL, 43),
    ("Duffel", "duf" + "fel_live_", URL, 43),
    ("Prefect", "pn" + "u_", ALNUM, 36),
    ("Shippo", "shippo" + "_live_", HEX, 40),
    ("Adafruit", "ai" + "o_", ALNUM, 28),
    ("Grafana cloud", "gl" + "c_", ALNUM, 60),
    ("Grafana service", "gl" + "sa_", ALNUM, 41),
    ("New Relic", "NR" + "AK-", UPPER, 27),
    ("Slack bot", "xo" + "xb-", "0123456789-" + ALNUM, 50),
    ("Slack user", "xo" + "xp-", "0123456789-" + HEX, 60),
    ("Slack app", "xa" + "pp-1-A01-12-", HEX, 40),
    ("SendGrid", "S" + "G.", URL, 66),
    ("Brevo", "xkey" + "sib-", HEX, 64),
    ("Resend", "re" + "_", ALNUM, 32),
    ("Stripe", "sk" + "_live_", ALNUM, 24),
    ("Stripe test", "sk" + "_test_", ALNUM, 99),
    ("Stripe restricted", "rk" + "_live_", ALNUM, 24),
    ("Stripe webhook", "wh" + "sec_", ALNUM, 32),
    ("Shopify", "sh" + "pat_", HEX, 32),
    ("Shopify secret", "sh" + "pss_", HEX, 32),
    ("Square", "sq0" + "atp-", URL, 22),
    ("Square OAuth", "sq0" + "csp-", URL, 43),
    ("Razorpay", "rzp" + "_live_", ALNUM, 14),
    ("Flutterwave", "FLW" + "SECK-", LOWER, 32),
    ("EasyPost", "EZ" + "AK", ALNUM, 54),
    ("Lob", "liv" + "e_", HEX, 35),
    ("Plaid", "access" + "-sandbox-", HEX, 36),
    ("Twilio", "S" + "K", HEX, 32),
    ("Twitter", "A" * 22, ALNUM, 80),
    ("Facebook", "EA" + "A", ALNUM, 150),
    ("Dropbox", "s" + "l.", URL, 130),
    ("Neon", "np" + "g_", ALNUM, 16),
]
NAMES = [
    *(
        "API_KEY",
        "OPENAI_API_KEY",
        "api-key",
        "apiKey",
        "aws_secret_access_key",
        "SECRET_KEY",
        "DJANGO_SECRET",
        "jwt_secret",
    ),
    *(
        "ACCESS_TOKEN",
        "refresh_token",
        "auth_token",
        "AuthToken",
        "authtoken",
        "X-Auth-Token",
        "X-Api-Key",
        "client_secret",
    ),
    *(
        "clientSecret",
        "DB_PASSWORD",
        "db_pass",
        "PGPASSWORD",
        "MYSQL_PWD",
        "password",
        "passwd",
        "passphrase",
        "sessionid",
    ),
    *(
        "session_token",
        "private_key",
        "encryption_key",
        "SIGNING_KEY",
        "webhook_secret",
        "bot_token",
        "ssh_key",
        "MASTER_KEY",
    ),
    *(
        "connection_string",
        "SENTRY_DSN",
        "credentials",
        "bearer_token",
        "id_token",
        "csrf_token",
        "service_account_key",
    ),
]
FORMS = [
    *("{name}={value}", "export {name}={value}", "{name}: {value}", '"{name}": "{value}"', "{name} = '{value}'"),
    *('{{"user": "ann", "{name}": "{value}", "n": 3}}', "run --{name} {value} --fast", "GET /x?{name}={value}&page=2"),
    *(
        'os.environ["{name}"] = "{value}"',
        '{{\\"{name}\\": \\"{value}\\"}}',
        "- {name}: {value}",
        "env {name}={value} python x.py",
    ),
]
SENTENCES = [
    "{}",
    "I used {} for it.",
    'key = "{}"',
    "error 401 for {}, try again",
    "curl -H 'x: {}' https://a.example/b",
    "({})",
]


def shapes(seed=1):
    """Return 300 triples: what it is, a text, and the part of it that must not be seen."""
    chance = random.Random(seed)
    made = [*_marked(chance), *_special(chance)]
    while len(made) < 300:
        name, form = NAMES[len(made) % len(NAMES)], FORMS[chance.randrange(len(FORMS))]
        value = _some(chance, chance.choice([ALNUM, HEX, URL, LOWER]), chance.choice([12, 20, 32, 40]))
        made.append((f"{name} in {form}", form.format(name=name, value=value), value))
    return made


def _some(chance, alphabet, count):
    return "".join(chance.choice(alphabet) for _ in range(count))


def _marked(chance):
    for issuer, mark, alphabet, length in MARKED:
        secret = mark + _some(chance, alphabet, length)
        yield issuer, chance.choice(SENTENCES).format(secret), secret


def _special(chance):
    """Yield what has no mark, or has it elsewhere."""

    def some(count, alphabet=ALNUM):
        return _some(chance, alphabet, count)

    def plain(what, before, secret, after=""):
        return what, f"{before}{secret}{after}", secret

    word, pem = f"Tr0ub4dor&{some(6)}", "\n".join(some(64) for _ in range(3))
    basic = b64encode(f"ann:{some(12)}".encode()).decode()
    yield plain("Azure storage", "AccountName=x;Account" + "Key=", some(86) + "==", ";EndpointSuffix=core.example")
    yield plain("Azure shared access", "https://x.blob.example/c?sv=2020&si" + "g=", some(43) + "%3D", "&se=2030")
    yield plain("Azure service bus", "Endpoint=sb://x;SharedAccess" + "Key=", some(43) + "=")
    yield plain("Azure client secret", "the value is ", some(3) + "8" + "Q~" + some(34))
    yield plain("Cosmos", "AccountEndpoint=https://x/;Account" + "Key=", some(86) + "==;")
    yield plain("Slack webhook", "https://hooks.slack.com/", "services/T000/B000/" + some(24))
    yield plain("Discord webhook", "https://discord.com/api/webhooks/", "1" * 18 + "/" + some(68, URL))
    yield plain("Discord bot", "bot ", "M" + some(25) + "." + some(6) + "." + some(38))
    yield plain("Telegram bot", "https://api.telegram.org/bot", "123456789" + ":AA" + some(33, URL), "/getMe")
    yield plain("Teams webhook", "https://x.webhook.office.com/", "webhookb2/" + some(36, HEX) + "@" + some(36, HEX))
    yield plain("Zapier", "https://hooks.zapier.com/", "hooks/catch/123456/" + some(7))
    yield plain("Mailchimp", "use ", some(32, HEX) + "-us" + "14")
    yield plain("Mailgun", "use ", "ke" + "y-" + some(32, HEX))
    yield plain("Airtable", "", "pa" + "t" + some(14) + "." + some(64, HEX))
    yield plain("JWT", "token ", f"eyJ{some(30)}.eyJ{some(60)}.{some(43, URL)}")
    yield plain("JWT unsigned", "", f"eyJ{some(30)}.eyJ{some(60)}.")
    yield plain("JWE", "", f"eyJ{some(30)}.{some(60)}.{some(16)}.{some(80)}.{some(22)}")
    for kind in ("RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ", ""):
        yield plain(
            f"PEM {kind}", f"-----BEGIN {kind}PRIVATE" + " KEY-----\n", pem, f"\n-----END {kind}PRIVATE KEY-----"
        )
    yield plain("PEM cut off", "-----BEGIN PRIVATE" + " KEY-----\n", pem)
    yield plain(
        "PEM in JSON", '"-----BEGIN PRIVATE' + " KEY-----\\n", pem.replace("\n", "\\n"), '\\n-----END PRIVATE KEY-----"'
    )
    yield plain("PGP", "-----BEGIN PGP PRIVATE" + " KEY BLOCK-----\n\n", pem, "\n-----END PGP PRIVATE KEY BLOCK-----")
    yield plain("PuTTY", "Private" + "-Lines: 3\n", pem, "\nPrivate-MAC: 00")
    for scheme in ("Bearer", "token", "Token", "Digest", "Bot", "ApiKey", "bearer"):
        yield plain(f"Authorization: {scheme}", f"Authorization: {scheme} ", some(40))
    yield plain("Authorization bare", "authorization: ", some(40))
    yield plain("Authorization: Basic", "Authorization: Basic ", basic)
    yield plain("Basic alone", "sent Basic ", basic, " to it")
    yield plain("Bearer alone", "sent Bearer ", some(30), " to it")
    yield plain("Bearer in curl", "curl -H 'Authorization: Bearer ", some(30), "' https://x.example")
    yield plain("Proxy-Authorization", "Proxy-Authorization: Basic ", basic)
    yield plain("AWS signature", "Authorization: AWS4-HMAC-SHA256 Credential=AK" + "IA/x, Signature=", some(64, HEX))
    yield plain("AWS presigned", "https://b.s3.example/k?X-Amz-Signature=", some(64, HEX), "&X-Amz-Expires=60")
    yield plain("GCS presigned", "https://storage.example/b/k?X-Goog-Signature=", some(256, HEX))
    yield plain("Cookie", "Cookie: sessionid=", some(32), "; theme=dark")
    yield plain("Set-Cookie", "Set-Cookie: session=", some(40), "; Path=/; HttpOnly")
    yield plain("Cookie in curl", "curl -H 'Cookie: a=1; sid=", some(32), "'")
    for scheme in ("postgres", "mysql", "redis", "amqp", "mongodb+srv", "https"):
        yield plain(f"{scheme} address", f"{scheme}://ann:", some(14), "@db.example:5432/x")
    yield plain("redis without user", "redis://:", some(14), "@cache.example:6379/0")
    yield plain("address with @", "postgres://ann:", f"p@{some(10)}", "@db.example/x")
    yield plain("token as user", "https://", some(40), "@git.example/a/b.git")
    yield plain("curl -u", "curl -u ann:", some(14), " https://x.example")
    yield plain("netrc", "machine x.example login ann password ", some(14))
    yield plain("netrc in lines", "machine x.example\nlogin ann\npassword ", some(14))
    yield plain("ODBC", "Driver=x;Uid=sa;Pwd=", some(14), ";")
    yield plain("ADO", "Server=x;User Id=sa;Password=", word, ";Encrypt=True")
    yield plain("JDBC", "jdbc:mysql://x/y?user=ann&password=", some(14))
    yield plain("SQL", "CREATE USER ann IDENTIFIED BY '", some(14), "'")
    yield plain("SQL role", "ALTER ROLE ann PASSWORD '", some(14), "'")
    yield plain("npmrc", "//registry.example/:_authToken=", some(36))
    yield plain("pypirc", "[pypi]\nusername = __token__\npassword = ", some(60))
    yield plain("quoted with a space", 'PASSWORD="', f"correct horse {some(12)}", '"')
    yield plain("passphrase of words", "passphrase: '", "correct horse battery staple", "'")
    yield plain("word as password", "password=", "swordfish")
    yield plain("word in YAML", "db:\n  user: ann\n  password: ", "swordfish", "\n  port: 3")
    yield plain("special characters", "DB_PASSWORD=", f"{word},x;y")
    yield plain("in a sentence", "my password is ", word, " and it works")
    yield plain("token in a sentence", "The API key is ", some(32), ".")
    yield plain("Spring", "spring.datasource.password=", some(14))
    yield plain("Docker", "ENV API_TOKEN=", some(30))
    yield plain("Kubernetes", "data:\n  password: ", b64encode(some(18).encode()).decode())
    yield plain("Terraform", 'secret_key = "', some(40), '"')
    yield plain("PHP", "$password = '", some(14), "';")
    yield plain("Ruby hash", ":api_key => '", some(30), "'")
    yield plain("Go", 'apiKey := "', some(30), '"')
    yield plain("keyword", 'Client(api_key="', some(30), '")')
    yield plain("header of a dict", "headers={'X-Api-Key': '", some(30), "'}")
    yield plain("repr of bytes", "{b'authorization': b'Bearer ", some(30), "'}")
    yield plain("bcrypt", "ann:", "$2" + "y$10$" + some(53))
    yield plain("shadow", "root:", "$6" + "$" + some(16) + "$" + some(86), ":19000:0")
    yield plain("query token", "wss://x.example/socket?access_token=", some(40))
    yield plain("Google query", "https://maps.example/api?key=", some(39))
    yield plain("fragment", "https://x.example/cb#access_token=", some(40), "&token_type=bearer")
    yield plain("form body", "grant_type=password&username=ann&password=", some(14))
    yield plain("log line", "2026-01-02 INFO login ok user=ann token=", some(32), " ms=3")
    yield plain("XML", "<password>", some(14), "</password>")
    yield plain("XML attribute", '<add name="x" password="', some(14), '"/>')
    yield plain("escaped twice", '\\\\\\"api_key\\\\\\": \\\\\\"', some(30), '\\\\\\"')
