// Draws a laid out workflow as SVG. State is told by colour, by a sign and by the kind of line.

import type { GraphStep } from "../protocol";
import { svg } from "../shared/svg";
import { oneLine } from "../shared/text";
import { HEIGHT, WIDTH, type PlacedEdge, type Point } from "./layout";
import type { Lit, StepState } from "./lit";

export const SIGNS: Record<Lit, string> = { pending: "○", running: "▸", waiting: "?", completed: "✓", failed: "✕", cancelled: "◼", caught: "↷" };
const MOST_LETTERS = 17;
const MOST_CONDITION = 22;
const MARGIN = 12;

/** A step, and whether paths join at it where that is known. */
export type Step = GraphStep & { join?: boolean };

/** A step on the page. */
export interface Drawn {
  element: SVGGElement;
  light(state: StepState): void;
}

/** Draws a step around its centre. */
export function drawStep(step: Step, { x, y }: Point): Drawn {
  const title = svg("title");
  const sign = svg("text", { x: 14, y: HEIGHT / 2 + 5, class: "sign", "text-anchor": "middle" });
  const visits = svg("text", { x: WIDTH - 8, y: HEIGHT / 2 - 3, class: "visits", "text-anchor": "end" });
  const name = svg("text", { x: 27, y: HEIGHT / 2 - 2, class: "name" }, oneLine(step.name, MOST_LETTERS));
  const about = [step.type, step.each ? "each item" : "", step.join === true ? "join" : ""].filter((part) => part !== "").join(" · ");
  const type = svg("text", { x: 27, y: HEIGHT / 2 + 12, class: "type" }, oneLine(about, 24));
  const box = svg("rect", { width: WIDTH, height: HEIGHT, rx: step.type === "prompt" ? 10 : 3, class: "box" });
  const behind = step.each && svg("rect", { x: 4, y: 4, width: WIDTH, height: HEIGHT, rx: 3, class: "box behind" });
  const join = step.join === true && svg("path", { d: `M -4 4 V ${HEIGHT - 4}`, class: "join" });
  const parts = [title, behind, box, join, sign, name, type, visits].filter((part) => part !== false);
  const element = svg("g", { class: "step", role: "button", tabindex: -1, transform: `translate(${x - WIDTH / 2} ${y - HEIGHT / 2})` }, ...parts);
  const light = (state: StepState): void => {
    element.setAttribute("data-status", state.status);
    sign.textContent = SIGNS[state.status];
    visits.textContent = state.visits > 1 ? `×${state.visits}` : "";
    const times = state.visits > 1 ? `, ${state.visits} visits` : "";
    title.textContent = `${oneLine(step.name, 400)} (${oneLine(about, 100)}): ${state.status}${times}`;
    element.setAttribute("aria-label", title.textContent);
  };
  return { element, light };
}

/** Draws an edge with its condition. */
export function drawEdge({ edge, points, isBack }: PlacedEdge, at: Point | undefined, arrow: string): SVGGElement {
  const path = points.length === 0 ? loop(at ?? { x: 0, y: 0 }) : curve(ends(points, isBack));
  const kinds = ["edge", edge.kind, ...(isBack ? ["back"] : [])].join(" ");
  const line = svg("path", { d: path, class: kinds, "marker-end": `url(#${arrow})` });
  const words = edge.kind === "catch" ? `on failure${edge.condition === "" ? "" : `: ${edge.condition}`}` : edge.condition;
  if (words === "") return svg("g", {}, line);
  const middle = labelPlace(points, at, isBack);
  const label = svg("text", { x: middle.x, y: middle.y, class: "condition", "text-anchor": "middle" }, oneLine(words, MOST_CONDITION));
  return svg("g", {}, svg("title", {}, oneLine(words, 2000)), line, label);
}

/** Moves the ends of a way to the sides of its steps; a way back leaves to the left. */
function ends(points: Point[], isBack: boolean): Point[] {
  const side = (WIDTH / 2) * (isBack ? -1 : 1);
  const shift = isBack ? 8 : 0; // beside the ways forward
  return points.map(({ x, y }, index) => {
    if (index === 0) return { x: x + side, y: y + shift };
    return index === points.length - 1 ? { x: x - side + (isBack ? 5 : -5), y: y + shift } : { x, y };
  });
}

function curve(points: Point[]): string {
  const [first, ...rest] = points;
  if (first === undefined) return "";
  let from = first;
  const parts = [`M ${first.x} ${first.y}`];
  for (const to of rest) {
    const half = (to.x - from.x) / 2;
    parts.push(`C ${from.x + half} ${from.y} ${to.x - half} ${to.y} ${to.x} ${to.y}`);
    from = to;
  }
  return parts.join(" ");
}

/** Draws a way from a step to itself, above it. */
function loop({ x, y }: Point): string {
  const top = y - HEIGHT / 2;
  return `M ${x + 24} ${top} C ${x + 44} ${top - 20} ${x - 44} ${top - 20} ${x - 24} ${top - 4}`;
}

function labelPlace(points: Point[], at: Point | undefined, isBack: boolean): Point {
  if (points.length === 0) return { x: at?.x ?? 0, y: (at?.y ?? 0) - HEIGHT / 2 - MARGIN - 5 };
  const [first, second] = [points[0], points[1]];
  if (first === undefined || second === undefined) return { x: 0, y: 0 };
  if (points.length > 2) return { x: second.x, y: second.y - 5 };
  return { x: (first.x + second.x) / 2, y: (first.y + second.y) / 2 - 5 + (isBack ? 22 : 0) };
}
