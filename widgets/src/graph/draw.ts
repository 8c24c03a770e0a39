// Draws a laid out workflow as SVG. Colour, a sign and the kind of line show the state.

import type { GraphStep, StepProgress } from "../protocol";
import { setText } from "../shared/dom";
import { svg } from "../shared/svg";
import { oneLine } from "../shared/text";
import { HEIGHT, MOST_CONDITION, WIDTH, wordsOf, type PlacedEdge, type Point } from "./layout";
import type { Lit, StepState } from "./lit";

export const SIGNS: Record<Lit, string> = { pending: "○", untaken: "–", running: "▸", stopped: "‖", waiting: "?", completed: "✓", failed: "✕", cancelled: "◼", caught: "↷" };
export const WORDS: Record<Lit, string> = { pending: "not yet", untaken: "not taken", running: "running", stopped: "stopped in it", waiting: "waits for you", completed: "completed", failed: "failed", cancelled: "cancelled", caught: "failed, went on elsewhere" };
/** What steps of a type are called, where it is not the type's own name. */
const TYPES: Record<string, string> = { interrupt: "question" };
const MOST_LETTERS = 14;
const UNREAD = { "aria-hidden": "true" }; // the label says it all
const DEPTH = 20; // how far ways back reach below the steps

/** A step on the page. */
export interface Drawn {
  element: SVGGElement;
  light(state: StepState, progress: StepProgress | undefined): void;
}

/** Draws a step around its centre. */
export function drawStep(step: GraphStep, { x, y }: Point): Drawn {
  const title = svg("title");
  const sign = svg("text", { x: 14, y: HEIGHT / 2 + 5, class: "sign", "text-anchor": "middle", ...UNREAD });
  const visits = svg("text", { x: WIDTH - 8, y: HEIGHT / 2 - 3, class: "visits", "text-anchor": "end", ...UNREAD });
  const name = svg("text", { x: 27, y: HEIGHT / 2 - 2, class: "name", ...UNREAD }, oneLine(step.name, MOST_LETTERS));
  const about = (TYPES[step.type] ?? step.type) + (step.each ? " · each item" : "");
  const type = svg("text", { x: 27, y: HEIGHT / 2 + 12, class: "type", ...UNREAD }, oneLine(about, 24));
  const box = svg("rect", { width: WIDTH, height: HEIGHT, rx: step.type === "prompt" ? 10 : 3, class: "box" });
  const behind = step.each && svg("rect", { x: 4, y: 4, width: WIDTH, height: HEIGHT, rx: 3, class: "box behind" });
  const parts = [title, behind, box, sign, name, type, visits].filter((part) => part !== false);
  const element = svg("g", { class: "step", role: "button", tabindex: -1, transform: `translate(${x - WIDTH / 2} ${y - HEIGHT / 2})` }, ...parts);
  const light = (state: StepState, progress: StepProgress | undefined): void => {
    const done = progress === undefined ? "" : doneOf(progress);
    const told = done || (state.status === "waiting" || state.status === "untaken" ? WORDS[state.status] : about);
    setText(type, oneLine(told, 24));
    element.setAttribute("data-status", state.status);
    setText(sign, SIGNS[state.status]);
    setText(visits, state.visits > 1 ? `×${state.visits}` : "");
    const times = state.visits > 1 ? `, ${state.visits} visits` : "";
    const how = [WORDS[state.status] + times, done].filter(Boolean).join(", ");
    setText(title, `${oneLine(step.name, 400)} (${oneLine(about, 100)}): ${how}`);
  };
  return { element, light };
}

/** Returns how many items are done, and how many of them failed. */
function doneOf({ done, total, failed }: StepProgress): string {
  const count = (number: number): string => number.toLocaleString("en");
  const part = total > 0 ? `${count(done)} of ${count(total)}` : `${count(done)} done`;
  return failed > 0 ? `${part}, ${count(failed)} failed` : part;
}

/** Draws an edge with its condition. */
export function drawEdge({ edge, points, isBack }: PlacedEdge, at: Point | undefined, arrow: string): SVGGElement {
  const from = points[0] ?? at ?? { x: 0, y: 0 };
  const to = points.at(-1) ?? from;
  const path = points.length === 0 ? loop(from) : isBack ? backwards(points) : forwards(points);
  const kinds = `edge ${edge.kind}${isBack ? " back" : ""}`;
  const line = svg("path", { d: path, class: kinds, "marker-end": `url(#${arrow})` });
  const words = wordsOf(edge);
  if (words === "") return svg("g", {}, line);
  const place = isBack ? { x: (from.x + to.x) / 2, y: Math.max(from.y, to.y) + HEIGHT / 2 + DEPTH + 8 } : beside(from, points[1] ?? to);
  const label = svg("text", { ...place, class: "condition", "text-anchor": "middle" }, oneLine(words, MOST_CONDITION));
  return svg("g", {}, svg("title", {}, oneLine(words, 2000)), line, label);
}

/** Goes from the right side of a step to the left side of another, through the places in between. */
function forwards(points: Point[]): string {
  const last = points.length - 1;
  const way = points.map(({ x, y }, index) => ({ x: x + (index === 0 ? WIDTH / 2 : index === last ? -WIDTH / 2 - 5 : 0), y }));
  return way.map((to, index) => (index === 0 ? `M ${to.x} ${to.y}` : bend(way[index - 1] ?? to, to))).join(" ");
}

function bend(from: Point, to: Point): string {
  const half = (to.x - from.x) / 2;
  return `C ${from.x + half} ${from.y} ${to.x - half} ${to.y} ${to.x} ${to.y}`;
}

/** Goes back below the steps: from the lower side of one, through the places in between, to the lower side of another. */
function backwards(points: Point[]): string {
  const [from, to] = [points[0], points.at(-1)];
  if (from === undefined || to === undefined) return "";
  const [leave, arrive] = [from.y + HEIGHT / 2, to.y + HEIGHT / 2 + 5];
  const between = points.slice(1, -1);
  const [first, last] = [between[0], between.at(-1)];
  if (first === undefined || last === undefined) {
    return `M ${from.x} ${leave} C ${from.x} ${leave + DEPTH * 1.4} ${to.x} ${arrive + DEPTH * 1.4} ${to.x} ${arrive}`;
  }
  const middle = between.map((point, index) => (index === 0 ? "" : bend(between[index - 1] ?? point, point))).join(" ");
  const start = `M ${from.x} ${leave} C ${from.x} ${leave + DEPTH} ${first.x + WIDTH / 2} ${first.y} ${first.x} ${first.y}`;
  return `${start} ${middle} C ${last.x - WIDTH / 2} ${last.y} ${to.x} ${arrive + DEPTH} ${to.x} ${arrive}`;
}

/** Goes from a step to itself, below it. */
function loop({ x, y }: Point): string {
  const bottom = y + HEIGHT / 2;
  return `M ${x + 28} ${bottom} C ${x + 40} ${bottom + DEPTH} ${x - 40} ${bottom + DEPTH} ${x - 28} ${bottom + 5}`;
}

/** Returns the place for a condition: in the gap after the step, on the way. */
function beside(from: Point, next: Point): Point {
  const [left, right] = [from.x + WIDTH / 2, next.x - WIDTH / 2];
  return { x: (left + right) / 2, y: (from.y + next.y) / 2 - 4 };
}
