"""The search of the site leads from the words of a user to the right page.

The scores are those of the theme: lunr with the weights and the separator of the index, a wildcard after each word, no
normalization by length, and pages before their sections. A page counts as found if it is among the first three.
"""

import bisect
import html
import json
import math
import re
from collections import Counter, defaultdict
from functools import cached_property

import pytest

from tests.built_site import built_site

pytestmark = pytest.mark.timeout(600)
"""The first test builds the site."""

FIRST = 3
QUESTIONS = {
    "resume after crash": ["how-to/resume.html", "07_when_it_breaks_off.html"],
    "kernel died": ["how-to/resume.html", "start/first-run.html", "07_when_it_breaks_off.html"],
    "fix failed run": ["how-to/fix-a-failed-run.html"],
    "delete runs": ["how-to/clean-up.html"],
    "where is the store": ["how-to/clean-up.html", "reference/stores.html", "reference/environment-variables.html"],
    "env variables": ["reference/environment-variables.html"],
    "install": ["start/install.html"],
    "ollama": ["start/models.html"],
    "OPENAI_API_KEY": ["start/models.html", "reference/environment-variables.html"],
    "cost limit": ["explain/cost-and-budgets.html"],
    "max_cost": ["explain/cost-and-budgets.html", "reference/definitions.html"],
    "approve tool": ["how-to/approve-tools.html", "02_agents_and_tools.html"],
    "encrypt": ["how-to/encrypt.html"],
    "cron schedule": ["how-to/schedule.html"],
    "slack notification": ["how-to/notify.html"],
    "mcp server": ["how-to/serve-mcp.html", "how-to/mcp-oauth.html"],
    "postgres": ["how-to/postgres.html", "reference/stores.html"],
    "docker": ["how-to/docker-workspaces.html", "reference/workspaces.html"],
    "jupyterhub": ["how-to/jupyterhub.html"],
    "papermill": ["how-to/papermill.html", "explain/from-papermill.html"],
    "upgrade": ["how-to/upgrade.html"],
    "pytest": ["how-to/test-in-ci.html", "reference/testing.html"],
    "compare two runs": ["how-to/compare-and-what-if.html", "04_compare_and_what_if.html"],
    "langgraph": ["explain/from-langgraph.html", "explain/compared.html"],
    "idempotent": ["explain/idempotency.html"],
    "is it safe to run a notebook from someone": ["explain/security.html"],
    "event types": ["reference/events.html"],
    "step_started": ["reference/events.html"],
    "exit code": ["reference/json-output.html", "COMMANDS.html"],
    "json output": ["reference/json-output.html"],
    "ctx.sleep": ["reference/context.html"],
    "undefined variable": ["reference/expressions.html", "reference/errors.html"],
    "dataframe columns": ["reference/frames.html"],
    "BoundExceededError": ["reference/errors.html"],
}
"""Words that a user types, with the pages that answer them."""

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a able about across after all almost also am among an and any are as at be because been but by can cannot
        could dear did do does either else ever every for from get got had has have he her hers him his how however i
        if in into is it its just least let like likely may me might most must my neither no nor not of off often on
        only or other our own rather said say says she should since so some than that the their them then there these
        they this tis to too twas us wants was we were what when where which while who whom why will with would yet
        you your
        """,
    )
)
"""Words that lunr leaves out of the index."""
K1 = 1.2


class Search:
    """Index of a site, from the file that the theme reads."""

    def __init__(self, path):
        index = json.loads(path.read_text(encoding="utf-8"))
        self.separator = re.compile(index["config"]["separator"])
        self.weights = {name: options["boost"] for name, options in index["config"]["fields"].items()}
        # A stemmer or trimmer would change the words.
        assert index["config"]["pipeline"] == ["stopWordFilter"]
        self.sections = index["docs"]
        self.postings = defaultdict(list)
        for number, section in enumerate(self.sections):
            for field in self.weights:
                words = Counter(self.words(str(section.get(field, ""))))
                for word, count in words.items():
                    self.postings[word].append((number, field, count))

    def words(self, text):
        plain = html.unescape(re.sub(r"<[^>]+>", " ", text))
        return [word.lower() for word in self.separator.split(plain) if word and word.lower() not in STOP_WORDS]

    @cached_property
    def vocabulary(self):
        return sorted(self.postings)

    def words_beginning_with(self, start):
        place = bisect.bisect_left(self.vocabulary, start)
        while place < len(self.vocabulary) and self.vocabulary[place].startswith(start):
            yield self.vocabulary[place]
            place += 1

    def pages(self, query):
        """Return the pages for a query, the best first."""
        terms = self.words(query)
        scores, matched = defaultdict(float), defaultdict(set)
        for term in terms:
            for word in self.words_beginning_with(term):
                postings = self.postings[word]
                rarity = math.log(1 + abs((len(self.sections) - len(postings) + 0.5) / (len(postings) + 0.5)))
                for number, field, count in postings:
                    scores[number] += self.weights[field] * rarity * (K1 + 1) * count / (K1 + count)
                    matched[number].add(term)
        best = {}
        for number, score in scores.items():
            location = self.sections[number]["location"]
            score *= self.sections[number].get("boost", 1)  # noqa: PLW2901 - the score with the weight of the page
            share = ("#" not in location) + len(matched[number]) / len(set(terms))
            page = location.partition("#")[0]
            best[page] = max(best.get(page, 0), score * (1 + share**2))
        return sorted(best, key=best.get, reverse=True)


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    # Dead links are a matter of other tests.
    folder, _ = built_site(tmp_path_factory)
    return Search(folder / "search" / "search_index.json")


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_leads_to_its_page(question, search):
    assert set(QUESTIONS[question]) & set(search.pages(question)[:FIRST])


def test_the_pages_that_answer_questions_exist(search):
    pages = {section["location"].partition("#")[0] for section in search.sections}
    assert sorted({page for wanted in QUESTIONS.values() for page in wanted} - pages) == []
