// Markdown of models as elements: headings, lists, tables, quotes, code, emphasis, links and formulas.
//
// Model output is hostile. It becomes text nodes and a fixed set of elements, never markup: HTML in it is shown as text,
// images are links, and only web and mail addresses are links. The text is split into blocks by line, for example
// "# Owls\n\nThey *hunt*:\n- mice\n- voles" into a heading, a paragraph and a list. A text that a model still writes is
// drawn again with each new piece: blocks whose source has not changed keep their elements, so only the last one changes.

import { h } from "./dom";

const MAX_INLINE = 10_000; // characters; a longer paragraph is plain text, because it is hardly written by hand
const MAX_DEPTH = 6; // lists and quotes inside each other; deeper ones are text
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(\s+|$)/;
const TABLE_LINE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const FORMULA = /^\s*(\$\$|\\\[)/;
const SAFE_ADDRESS = /^(?:https?:\/\/|mailto:)[^\s<>"]+$/i;

/** Element with a text in Markdown that can grow. */
export class MarkdownView {
  readonly element = h("div", { class: "db-markdown", dir: "auto" });
  #sources: string[] = [];

  /** Show a text. Blocks that have not changed keep their elements, and with them the selection of a person. */
  update(text: string): void {
    const sources = blocksOf(text);
    sources.forEach((source, place) => {
      if (source === this.#sources[place]) return;
      const block = blockElement(source, 0);
      const current = this.element.children[place];
      if (current === undefined) this.element.append(block);
      else current.replaceWith(block);
    });
    while (this.element.children.length > sources.length) this.element.lastElementChild?.remove();
    this.#sources = sources;
  }
}

/** Return the beginning of a text for a line without markup: without the signs of headings, quotes, emphasis and code. */
export function withoutSigns(text: string): string {
  return text.replace(/^ {0,3}(?:#{1,6}\s+|> ?)/gm, "").replace(/\*\*|~~|`+/g, "");
}

/** Split a text into the sources of its blocks. */
export function blocksOf(text: string): string[] {
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const blocks: string[] = [];
  let start = 0;
  while (start < lines.length) {
    if ((lines[start] ?? "").trim() === "") {
      start += 1;
      continue;
    }
    const end = Math.max(endOfBlock(lines, start), start + 1);
    blocks.push(lines.slice(start, end).join("\n"));
    start = end;
  }
  return blocks;
}

/** Return the line after the block that starts at a line. */
function endOfBlock(lines: readonly string[], start: number): number {
  const first = lines[start] ?? "";
  const next = (isPart: (line: string, place: number) => boolean): number => {
    let end = start + 1;
    while (end < lines.length && isPart(lines[end] ?? "", end)) end += 1;
    return end;
  };
  const fence = FENCE.exec(first)?.[1];
  if (fence !== undefined) return next((line) => !isFenceEnd(line, fence)) + 1;
  if (HEADING.test(first) || RULE.test(first)) return start + 1;
  const opening = FORMULA.exec(first)?.[1];
  if (opening !== undefined) {
    const closing = opening === "$$" ? "$$" : "\\]";
    const isClosed = first.trim().length > 2 && first.trim().endsWith(closing);
    return isClosed ? start + 1 : next((line) => !line.includes(closing)) + 1;
  }
  if (QUOTE.test(first)) return next((line) => QUOTE.test(line));
  if (ITEM.test(first)) {
    const belongs = (line: string, place: number): boolean => {
      if (line.trim() === "") return /^\s+\S/.test(lines[place + 1] ?? "") || isNextItem(lines[place + 1], first);
      return isNextItem(line, first) || /^\s/.test(line) || ((lines[place - 1] ?? "").trim() !== "" && !startsBlock(line));
    };
    return next(belongs);
  }
  if (isTable(lines, start)) return next((line) => line.trim() !== "" && line.includes("|"));
  return next((line, place) => line.trim() !== "" && !startsBlock(line) && !isTable(lines, place));
}

function isFenceEnd(line: string, fence: string): boolean {
  const text = line.trim();
  return text.startsWith(fence) && text === text.charAt(0).repeat(text.length);
}

function isOrdered(line: string): boolean {
  return /\d/.test(ITEM.exec(line)?.[2] ?? "");
}

/** Return whether a line starts an item of the list that another line starts, and not of a list inside of it. */
function isNextItem(line: string | undefined, first: string): boolean {
  const indent = (text: string): number => text.length - text.trimStart().length;
  return line !== undefined && ITEM.test(line) && !RULE.test(line) && isOrdered(line) === isOrdered(first) && indent(line) < indent(first) + 2;
}

function isTable(lines: readonly string[], start: number): boolean {
  const rule = lines[start + 1] ?? "";
  return (lines[start] ?? "").includes("|") && rule.includes("|") && rule.length < 2_000 && TABLE_LINE.test(rule);
}

function startsBlock(line: string): boolean {
  return [FENCE, HEADING, RULE, QUOTE, ITEM, FORMULA].some((pattern) => pattern.test(line));
}

/** Return the element of one block. */
function blockElement(source: string, depth: number): HTMLElement {
  const lines = source.split("\n");
  const first = lines[0] ?? "";
  const fence = FENCE.exec(first);
  if (fence !== null) return codeBlock(lines, fence[1] ?? "", (fence[2] ?? "").trim());
  const heading = HEADING.exec(first);
  if (heading !== null) return h("p", { class: "heading", role: "heading", "aria-level": (heading[1] ?? "").length + 2 }, ...inline(heading[2] ?? ""));
  if (RULE.test(first)) return h("hr");
  if (FORMULA.test(first)) return h("div", { class: "formula" }, source);
  if (depth < MAX_DEPTH && QUOTE.test(first)) return h("blockquote", {}, ...blocks(lines.map((line) => line.replace(QUOTE, "")).join("\n"), depth));
  if (depth < MAX_DEPTH && ITEM.test(first)) return list(lines, depth);
  if (isTable(lines, 0)) return table(lines);
  return h("p", {}, ...inline(source));
}

function blocks(text: string, depth: number): HTMLElement[] {
  return blocksOf(text).map((source) => blockElement(source, depth + 1));
}

function codeBlock(lines: readonly string[], fence: string, language: string): HTMLElement {
  const isClosed = lines.length > 1 && isFenceEnd(lines.at(-1) ?? "", fence);
  const code = lines.slice(1, isClosed ? -1 : undefined).join("\n");
  return h("pre", { class: "db-text", dir: "auto", tabindex: 0, "aria-label": language === "" ? "Code" : `Code: ${language.slice(0, 40)}` }, code);
}

/** Return a list. Each item is the text behind its sign, and the lines below that are indented. */
function list(lines: readonly string[], depth: number): HTMLElement {
  const [firstLine = ""] = lines;
  const items: string[][] = [];
  for (const line of lines) {
    const match = ITEM.exec(line);
    if (match !== null && isNextItem(line, firstLine)) items.push([line.slice(match[0].length)]);
    else items.at(-1)?.push(line.replace(/^(?: {1,4}|\t)/, ""));
  }
  const elements = items.map((item) => {
    const content = blocks(item.join("\n"), depth);
    const [only] = content;
    return h("li", {}, ...(content.length === 1 && only?.localName === "p" ? [...only.childNodes] : content));
  });
  return isOrdered(firstLine) ? h("ol", { start: Number.parseInt(firstLine.trim(), 10) }, ...elements) : h("ul", {}, ...elements);
}

function table(lines: readonly string[]): HTMLElement {
  const [head = "", rule = "", ...rows] = lines;
  const aligns = cells(rule).map((cell) => (/^:.*:$/.test(cell) ? "center" : cell.endsWith(":") ? "end" : "start"));
  const row = (line: string, tag: "th" | "td"): HTMLElement => {
    const all = cells(line).slice(0, aligns.length);
    return h("tr", {}, ...all.map((cell, place) => h(tag, { class: aligns[place] ?? "start" }, ...inline(cell))));
  };
  const body = h("tbody", {}, ...rows.map((line) => row(line, "td")));
  return h("div", { class: "wide-table", tabindex: 0, role: "region", "aria-label": "Table" }, h("table", {}, h("thead", {}, row(head, "th")), body));
}

/** Split the line of a table. A bar behind a backslash belongs to its cell. */
function cells(line: string): string[] {
  const text = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return text.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

// Inline syntax, first match first. The lengths are limited, so that no text takes long.
const INLINE = new RegExp([
  "(?<code>(?<ticks>`{1,3})(?!`)(?<codeText>.{1,500}?)(?<!`)\\k<ticks>(?!`))",
  "(?<math>\\$(?![\\s$\\d])[^$\\n]{1,500}?(?<!\\s)\\$(?!\\d)|\\\\\\([^\\n]{1,500}?\\\\\\))",
  "(?<escape>\\\\[!-/:-@[-`{-~])",
  "(?<link>!?\\[(?<label>[^\\]\\n]{0,500})\\]\\((?<target>[^()\\s]{1,2000}(?:\\([^()\\s]{0,200}\\)[^()\\s]{0,2000})?)(?:\\s+\"[^\"\\n]{0,200}\")?\\))",
  "(?<address>https?://[^\\s<>\"'`\\])]{1,2000}[^\\s<>\"'`\\]).,;:!?])",
  "(?<strong>\\*\\*(?=\\S)[^\\n]{1,500}?(?<=\\S)\\*\\*|(?<!\\w)__(?=\\S)[^\\n]{1,500}?(?<=\\S)__(?!\\w))",
  "(?<em>\\*(?=[^\\s*])[^*\\n]{1,500}?(?<=\\S)\\*|(?<!\\w)_(?=[^\\s_])[^_\\n]{1,500}?(?<=\\S)_(?!\\w))",
  "(?<del>~~(?=\\S)[^~\\n]{1,500}?~~)",
].join("|"), "g");

/** Return a text with emphasis, code, links and formulas as nodes. */
function inline(text: string, depth = 0): (Node | string)[] {
  if (text.length > MAX_INLINE) return [text];
  const nodes: (Node | string)[] = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > end) nodes.push(text.slice(end, match.index));
    nodes.push(inlineNode(match[0], match.groups ?? {}, depth));
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}

function inlineNode(source: string, groups: Record<string, string | undefined>, depth: number): Node | string {
  const inner = (size: number): (Node | string)[] => (depth < MAX_DEPTH ? inline(source.slice(size, -size), depth + 1) : [source.slice(size, -size)]);
  if (groups["code"] !== undefined) return h("code", {}, groups["codeText"]?.trim());
  if (groups["escape"] !== undefined) return source.slice(1);
  if (groups["math"] !== undefined) return h("span", { class: "formula" }, source);
  if (groups["link"] !== undefined) return link(groups["label"] ?? "", groups["target"] ?? "", source.startsWith("!"));
  if (groups["address"] !== undefined) return link(source, source, false);
  if (groups["strong"] !== undefined) return h("strong", {}, ...inner(2));
  if (groups["del"] !== undefined) return h("s", {}, ...inner(2));
  return h("em", {}, ...inner(1));
}

/** Return a link to a web or mail address. Its title shows the address, because the text may claim another one. An image is not loaded. */
function link(label: string, target: string, isImage: boolean): Node | string {
  const text = `${isImage ? "image: " : ""}${label || target}`;
  if (!SAFE_ADDRESS.test(target)) return `${text} (${target})`;
  return h("a", { href: target, title: target, target: "_blank", rel: "noopener noreferrer nofollow" }, text);
}
