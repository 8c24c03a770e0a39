"""What credentials look like that carry a mark of their issuer: tables of `divebook.text.redaction`.

Written from the forms that issuers publish. Texts may be long and hostile: after its mark a pattern has one run of
characters, taken whole and never given back, so that no text is read twice (`tests/text/test_redaction.py` has the
hostile ones, `tests/text/test_corpus.py` counts what is missed and what is hidden without need).
"""

from __future__ import annotations

_URL = r"[A-Za-z0-9_-]"
"""What an address may hold without escapes."""
_MORE = r"[A-Za-z0-9_.=+/%-]"
"""Base64 in all its forms, with dots."""
_HEX = "[A-Fa-f0-9]"

ESCAPED = r"(?<=\\[bfnrt])"
"""Behind the last letter of an escape: in ``'a\\nghp_...'``, as `repr` and JSON write it, the mark begins a line."""

MARKED: tuple[tuple[str, str, int], ...] = (
    # marks, the characters that follow them, and how many of those at least
    # clouds and hosts
    ("AKIA ASIA ABIA ACCA AROA AIDA", "[A-Z0-9]", 16),
    ("ABSK bedrock-api-key-", _MORE, 40),
    ("AIza", _URL, 30),
    ("ya29. GOCSPX- 1//0", _MORE, 20),
    ("LTAI AKID", "[A-Za-z0-9]", 16),
    ("AQVN t1. y0_Ag", _MORE, 30),
    ("dop_v1_ doo_v1_ dor_v1_", _HEX, 40),
    ("HRKU- rnd_ nfp_ nfc_ nfo_ vcp_ vci_ vca_ vcr_ vck_", _URL, 20),
    ("fo1_ fm1r_ fm1a_ fm1_ fm2_", _MORE, 30),
    ("sbp_ sb_secret_ napi_ npg_", _URL, 12),
    ("pscale_tkn_ pscale_pw_ pscale_oauth_", _MORE, 20),
    ("dapi dkea dose", "[a-f0-9]", 32),
    ("tskey-", _URL, 16),
    ("v1.0-", _HEX, 24),
    ("hvs. hvb. hvr. dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit. atlasv1.", _MORE, 20),
    ("pul- dt0c01. dt0s01. dt0s16.", _MORE, 24),
    ("ops_eyJ A3- AGE-SECRET-KEY-1 AGE-PLUGIN-", _MORE, 26),
    ("s. b. r.", "[A-Za-z0-9]", 24),
    # models
    ("sk- sk_ pk- pk_ rk- rk_ sess- sk.", r"[\w.-]", 16),
    (
        "gsk_ xai- pplx- nvapi- r8_ fw_ hf_ api_org_ pa- csk- tvly- fc- e2b_ rpa_ jina_ pcsk_ lsv2_ ls__ bce-v3/",
        _MORE,
        16,
    ),
    ("key- KEY-", _HEX, 32),
    ("sdk- mob- api-", "[a-f0-9-]", 36),
    # code and packages
    ("ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"\w", 20),
    ("glpat- gldt- glrt- glrtr- glcbt- glptt- glsoat- glimt- glagent- gloas- glffct- GR1348941", _MORE, 16),
    ("ATATT3 ATCTT3 ATBB BBDC-", _MORE, 20),
    ("npm_ rubygems_ cio oy2 dckr_pat_ dckr_oat_ CLOJARS_ pypi- AKCp cmVmdGtu", _URL, 24),
    ("bkua_ bkct_ CCIPAT_ CCIPRJ_ squ_ sqp_ sqa_ sntrys_ sntryu_ phx_ phc_ sgp_ slk_", _MORE, 20),
    ("PMAK- PMAT- tfp_ rdme_ lin_api_ lin_oauth_ figd_ ntn_ secret_ pat-na1- pat-na2- pat-eu1-", _URL, 20),
    ("CFPAT- duffel_ fio-u- pnu_ pnb_ aio_ ico- tk-us- shippo_live_ shippo_test_", _URL, 24),
    ("glc_ glsa_ eyJrIjoi NRAK- NRJS- NRII- NRBR- NRAA-", _MORE, 18),
    # messages and money
    ("xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xoxc- xoxd- xoxe. xapp-", _MORE, 10),
    ("SG.", _MORE, 40),
    ("xkeysib- xsmtpsib- re_ whsec_ mlsn. MT_ tok_", _MORE, 20),
    ("shpat_ shpca_ shppa_ shpss_ shptka_", _HEX, 32),
    ("sq0atp- sq0csp- sq0idp- EAAA EAAl", _MORE, 22),
    ("access_token$production$ access_token$sandbox$", r"[\w$]", 20),
    ("rzp_live_ rzp_test_ FLWSECK_TEST- FLWSECK- FLWPUBK- EZAK EZTK", _URL, 14),
    ("live_ test_", "[a-f0-9]", 32),
    ("access-sandbox- access-production- access-development-", "[a-f0-9-]", 30),
    ("SK AC", "[a-f0-9]", 32),
    ("AAAAAAAAAAAAAAAAAAAAA", r"[\w%]", 40),
    ("EAA IGQV", "[A-Za-z0-9]", 60),
    ("sl.", _MORE, 60),
    ("AAPK", _MORE, 40),
)
"""Credentials that begin with a mark, where no letter or digit stands before it and what follows is not plain words."""

SHAPED: tuple[tuple[tuple[str, ...], str, str], ...] = (
    # one of these, in lower case, is in the text, and this after no letter or digit; or the pattern is not
    # tried; what the pattern meets is hidden
    (("eyj",), r"eyJ[\w-]{8}", rf"(?:(?<![\w-])|{ESCAPED})eyJ[\w-]{{8,}}+\.[\w-]{{8,}}+(?:\.[\w-]*+){{1,3}}"),
    (
        ("private key",),
        "-BEGIN ",
        r"(?s)-----BEGIN [A-Z0-9 ]{0,40}+(?:(?<=PRIVATE KEY)|(?<=KEY BLOCK))-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)",
    ),
    (("private-lines",), "Lines: ", r"(?<=Private-Lines: )\d{1,3}(?:(?:\\r|\r)?(?:\\n|\n)[\w+/=]++){1,99}"),
    (("q~",), r"[\w~.-]{3}[78]Q~", rf"(?:(?<![\w~.-])|{ESCAPED})[\w~.-]{{3}}[78]Q~[\w~.-]{{30,}}+"),
    (
        ("hooks.slack.com",),
        r"slack\.com/",
        r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/+-]{10,}+",
    ),
    (("/webhooks/",), r"webhooks/\d", r"(?<=/webhooks/)\d{10,25}/[\w-]{30,}+"),
    (("webhook.office.com",), r"office\.com/", r"(?<=webhook\.office\.com/)[\w@/-]{30,}+"),
    (("hooks.zapier.com",), r"zapier\.com/", r"(?<=hooks\.zapier\.com/)[\w/-]{10,}+"),
    ((":aa",), "(?<=:)AA", r"(?<!\d)\d{8,11}:AA[\w-]{30,}+"),
    (("-us",), "[a-f0-9]{32}-us", rf"(?:(?<!\w)|{ESCAPED})[a-f0-9]{{32}}-us\d{{1,2}}(?!\w)"),
    (("pat",), r"pat[A-Za-z0-9]{14}\.", rf"(?:(?<!\w)|{ESCAPED})pat[A-Za-z0-9]{{14}}\.[a-f0-9]{{60,}}+"),
    (
        (".",),
        r"[MNO][A-Za-z\d_-]{22,27}\.",
        rf"(?:(?<![\w.-])|{ESCAPED})[MNO][A-Za-z\d_-]{{22,27}}\.[\w-]{{6}}\.[\w-]{{27,}}+",
    ),
    (("$",), r"(?<=\$)[a-z0-9]{1,8}\$", r"\$(?:2[aby]|apr1|1|5|6|y|argon2(?:id|i|d))\$[\w$./,=+]{20,}+"),
)
"""Credentials with a shape of their own."""
