"""The ways of ``hostile.py``, and what is to come of the run: see ``tests/tools/hostile_servers.py``.

``works``: the run completes, with the sound tools of this server too. ``any``: it completes, with the tools of others.
``fails``: the server cannot be used, and the run says so.
"""

from pathlib import Path

PROGRAM = Path(__file__).with_name("hostile.py")
_WORKS = """
list-odd-items list-wrong-types list-null-fields list-deep list-recursive-schema list-recursive-local
list-control-names list-path-names list-odd-names list-own-names list-one-name list-long-description
list-control-description list-credential-description list-lies list-backtracking list-bad-pattern list-same-cursor
list-changes list-wrong-id list-twice list-asks
call-error call-error-empty call-deep call-malformed call-unknown-type call-null call-content-null call-bad-image
call-file-link call-trap-link call-file-resource call-bad-blob call-credential call-control call-reference call-big
call-twice call-progress call-list-changed call-cancelled call-pings call-roots call-unknown-method
call-samples call-samples-nothing call-asks call-asks-badly call-asks-nothing call-asks-address call-asks-often
call-asks-and-ends call-bytes call-silent call-wrong-id call-dies call-dies-saying call-asks-and-dies call-huge
call-floods call-garbage call-batch call-both
init-instructions init-no-tools init-garbage
list-surrogates list-nan list-huge-int
call-surrogates call-surrogate-keys call-nan call-huge-int call-odd-error call-asks-after call-samples-after
call-samples-surrogates call-asks-nan call-asks-surrogates call-next-id call-raw-numbers call-raw-float
call-doubled-keys call-deepest call-nul call-odd-codes call-half call-half-dies call-100-mb call-endless-line
call-endless-errors call-endless-error-lines
call-closes-output call-closes-input call-stays call-leaves-child call-notifies-forever call-notifies-slowly
call-changes-forever call-pings-forever call-roots-forever call-answers-forever call-others-forever
init-asks init-twice init-surrogates init-nan
"""
_ANY = """
call-changes-tools call-removes-tools call-breaks-list
"""
_FAILS = """
list-null list-number list-without-tools list-tools-null list-tools-mapping list-many list-odd-cursor list-endless
list-error list-huge list-silent list-dies
init-silent init-dies init-error init-version init-null
init-closes-output init-stays init-half init-100-mb init-notifies-forever init-pings-forever init-other-id
init-huge-version
http-silent http-closes http-drip http-endless http-bomb http-truncated http-empty http-nan http-deep http-headers
http-redirect-302 http-redirect-307 http-redirect-file http-unauthorized http-events http-page
"""
WAYS = {
    **dict.fromkeys(_WORKS.split(), "works"),
    **dict.fromkeys(_ANY.split(), "any"),
    **dict.fromkeys(_FAILS.split(), "fails"),
    "call-asks-backtracking": "works",  # it is declined: no answer is checked against the pattern
}
