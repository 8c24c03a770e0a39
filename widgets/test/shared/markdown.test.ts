// Markdown of models: what it becomes, what it never becomes, and which elements stay while it grows.

import { expect, test } from "vitest";
import { MarkdownView } from "../../src/shared/markdown";

function viewOf(text: string): MarkdownView {
  const view = new MarkdownView();
  view.update(text);
  return view;
}

// eslint-disable-next-line no-restricted-properties -- it is only read
const html = (text: string): string => [...viewOf(text).element.children].map((block) => block.outerHTML).join("");

const TEXTS: [string, string, string][] = [
  ["a heading", "## Owls", '<p class="heading" role="heading" aria-level="4">Owls</p>'],
  ["emphasis", "They **hunt** *by* ~~day~~ `night`.", "<p>They <strong>hunt</strong> <em>by</em> <s>day</s> <code>night</code>.</p>"],
  ["names with underlines", "the snake_case_name and 2 * 3 * 4", "<p>the snake_case_name and 2 * 3 * 4</p>"],
  ["a list", "- mice\n- voles\n  - young ones", "<ul><li>mice</li><li><p>voles</p><ul><li>young ones</li></ul></li></ul>"],
  ["a numbered list", "3. mice\n4. voles", '<ol start="3"><li>mice</li><li>voles</li></ol>'],
  ["a quote", "> owls\n> hunt", "<blockquote><p>owls\nhunt</p></blockquote>"],
  ["a rule", "---", "<hr>"],
  ["a link", "[owls](https://example.org/a_(b))", '<p><a href="https://example.org/a_(b)" title="https://example.org/a_(b)" target="_blank" rel="noopener noreferrer nofollow">owls</a></p>'],
  ["an address", "see https://example.org/owls.", '<p>see <a href="https://example.org/owls" title="https://example.org/owls" target="_blank" rel="noopener noreferrer nofollow">https://example.org/owls</a>.</p>'],
  ["a formula", "so $x^2$ and \\(y\\) for $5 or $6", '<p>so <span class="formula">$x^2$</span> and <span class="formula">\\(y\\)</span> for $5 or $6</p>'],
  ["a formula of its own", "$$\nx^2\n$$", '<div class="formula">$$\nx^2\n$$</div>'],
  ["an escaped sign", "\\*owls\\*", "<p>*owls*</p>"],
];

test.each(TEXTS)("%s", (_name, text, expected) => {
  expect(html(text)).toBe(expected);
});

test("a table has its alignment, and bars inside cells", () => {
  const { element } = viewOf("| Owl | Weight |\n|:--|--:|\n| barn | 400 g |\n| a\\|b | **2** |");
  expect([...element.querySelectorAll("th")].map((cell) => [cell.textContent, cell.className])).toEqual([["Owl", "start"], ["Weight", "end"]]);
  expect([...element.querySelectorAll("td")].map((cell) => cell.textContent)).toEqual(["barn", "400 g", "a|b", "2"]);
});

test("code is text, also before its end has come", () => {
  for (const text of ["```python\nx = '<b>'\n\n# no heading\n```", "```python\nx = '<b>'\n\n# no heading"]) {
    const { element } = viewOf(text);
    expect(element.children).toHaveLength(1);
    expect(element.querySelector("pre")?.textContent).toBe("x = '<b>'\n\n# no heading");
  }
});

const HOSTILE = [
  "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[a](javascript:alert(1))", "[a](JaVaScRiPt:alert(1))", "[a](data:text/html,x)",
  "![a](https://example.org/pixel.png)", "![a](javascript:x)", "[![a](https://example.org/x.png)](vbscript:x)", "<svg onload=alert(1)>", "[a]: javascript:x\n[a]",
  '[a](https://example.org/" onclick="x)', "<https://example.org/><iframe src=x>", "| <b> | [x](javascript:1) |\n|--|--|", "```<b>\n</code><b>\n```", "[a](\u0001javascript:x)",
];

test.each(HOSTILE)("hostile text adds no markup, no image and no script: %s", (text) => {
  const { element } = viewOf(text);
  expect(element.querySelectorAll("script, img, iframe, svg, b, style, object, [onclick], [onerror], [src]")).toHaveLength(0);
  for (const { href } of element.querySelectorAll("a")) expect(href).toMatch(/^https:\/\/example\.org\//);
});

test("blocks that have not changed keep their elements while the text grows", () => {
  const view = viewOf("# Owls\n\nThey hunt");
  const [heading, paragraph] = view.element.children;
  view.update("# Owls\n\nThey hunt by night.\n\n- mice");
  expect(view.element.children[0]).toBe(heading);
  expect(view.element.children[1]).not.toBe(paragraph);
  expect(view.element.children).toHaveLength(3);
  view.update("# Owls");
  expect(view.element.children).toHaveLength(1);
});

test("no text takes long", () => {
  const began = performance.now();
  for (const part of ["*", "_", "`", "[", "[a](", "$", "> ", "- ", "|-", "**a", "~~", "\\(", "https://", "![", "1. ", "|a|\n|-|\n"]) html(part.repeat(Math.ceil(20_000 / part.length)));
  expect(performance.now() - began).toBeLessThan(15_000);
}, 60_000);
