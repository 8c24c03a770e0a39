// SVG drawing of steps and edges. Colour, a sign and the line style show the state.

import { STATUS_SIGNS } from "../constants";
import type { GraphStep, StepProgress } from "../protocol";
import { setText } from "../shared/dom";
import { formatCount } from "../shared/format";
import { svg } from "../shared/svg";
import { oneLine } from "../shared/text";
import { HEIGHT, MOST_CONDITION, WIDTH, conditionText, type PlacedEdge, type Point } from "./layout";
import type { StepStatus, StepState } from "./stepstate";

export const SIGNS: Record<StepStatus, string> = {
  ...STATUS_SIGNS,
  pending: "○",
  untaken: "–",
  stopped: STATUS_SIGNS.paused,
  waiting: "?",
  caught: "↷",
};
export const WORDS: Record<StepStatus, string> = {
  pending: "not started",
  untaken: "not taken",
  running: "running",
  stopped: "the run stopped here",
  waiting: "waits for you",
  completed: "completed",
  failed: "failed",
  cancelled: "cancelled",
  caught: "failed, and the error was caught",
};
/** Display names of step types, if they differ from the type. */
const TYPES: Record<string, string> = { interrupt: "question" };
const NAME_LENGTH = 14;
const TYPE_LENGTH = 24;
const HIDDEN = { "aria-hidden": "true" }; // the title already contains these texts
const DEPTH = 20; // pixels by which back edges run below the steps

/** Element of a step, with a function that shows its state. */
export interface StepDrawing {
  element: SVGGElement;
  showState(state: StepState, progress: StepProgress | undefined): void;
}

/** Draw a step around its center. */
export function drawStep(step: GraphStep, { x, y }: Point): StepDrawing {
  const title = svg("title");
  const sign = svg("text", { x: 14, y: HEIGHT / 2 + 5, class: "sign", "text-anchor": "middle", ...HIDDEN });
  const visits = svg("text", { x: WIDTH - 8, y: HEIGHT / 2 - 4, class: "visits", "text-anchor": "end", ...HIDDEN });
  const name = svg("text", { x: 27, y: HEIGHT / 2 - 4, class: "name", ...HIDDEN }, oneLine(step.name, NAME_LENGTH));
  const typeText = (TYPES[step.type] ?? step.type) + (step.each ? " · per item" : "");
  const type = svg("text", { x: 27, y: HEIGHT / 2 + 13, class: "type", ...HIDDEN }, oneLine(typeText, TYPE_LENGTH));
  const box = svg("rect", { width: WIDTH, height: HEIGHT, rx: step.type === "prompt" ? 10 : 3, class: "box" });
  const behind = step.each && svg("rect", { x: 4, y: 4, width: WIDTH, height: HEIGHT, rx: 3, class: "box behind" });
  const parts = [title, behind, box, sign, name, type, visits].filter((part) => part !== false);
  const element = svg("g", { class: "step", role: "button", tabindex: -1, transform: `translate(${x - WIDTH / 2} ${y - HEIGHT / 2})` }, ...parts);
  const showState = (state: StepState, progress: StepProgress | undefined): void => {
    const progressText = progress === undefined ? "" : progressOf(progress);
    const statusText = state.status === "waiting" || state.status === "untaken" ? WORDS[state.status] : typeText;
    setText(type, oneLine(progressText || statusText, TYPE_LENGTH));
    element.setAttribute("data-status", state.status);
    setText(sign, SIGNS[state.status]);
    setText(visits, state.visits > 1 ? `×${state.visits}` : "");
    const times = state.visits > 1 ? `, ${state.visits} visits` : "";
    const statusWords = [WORDS[state.status] + times, progressText].filter(Boolean).join(", ");
    setText(title, `${oneLine(step.name, 400)} (${oneLine(typeText, 100)}): ${statusWords}`);
  };
  return { element, showState };
}

/** Return the progress of a step over its items, with the number of failures. */
function progressOf({ done, total, failed }: StepProgress): string {
  const part = total > 0 ? `${formatCount(done)} of ${formatCount(total)}` : `${formatCount(done)} done`;
  return failed > 0 ? `${part}, ${formatCount(failed)} failed` : part;
}

/** Draw an edge with its condition. */
export function drawEdge({ edge, points, isBack }: PlacedEdge, at: Point | undefined, arrow: string): SVGGElement {
  const from = points[0] ?? at ?? { x: 0, y: 0 };
  const to = points.at(-1) ?? from;
  let path = isBack ? backwards(points) : forwards(points);
  if (points.length === 0) path = loop(from);
  const kinds = `edge ${edge.kind}${isBack ? " back" : ""}`;
  const line = svg("path", { d: path, class: kinds, "marker-end": `url(#${arrow})` });
  const words = conditionText(edge);
  if (words === "") return svg("g", {}, line);
  const below = { x: (from.x + to.x) / 2, y: Math.max(from.y, to.y) + HEIGHT / 2 + DEPTH + 8 };
  const place = isBack ? below : conditionPlace(from, points[1] ?? to);
  const label = svg("text", { ...place, class: "condition", "text-anchor": "middle" }, oneLine(words, MOST_CONDITION));
  return svg("g", {}, svg("title", {}, oneLine(words, 2000)), line, label);
}

/** Return a path from the right side of a step to the left side of another, through the waypoints. */
function forwards(points: Point[]): string {
  const last = points.length - 1;
  const ends = points.map(({ x, y }, index) => {
    if (index === 0) return { x: x + WIDTH / 2, y };
    return { x: index === last ? x - WIDTH / 2 - 5 : x, y }; // 5: room for the arrow
  });
  return ends.map((to, index) => (index === 0 ? `M ${to.x} ${to.y}` : bend(ends[index - 1] ?? to, to))).join(" ");
}

/** Return a curve with horizontal tangents. */
function bend(from: Point, to: Point): string {
  const half = (to.x - from.x) / 2;
  return `C ${from.x + half} ${from.y} ${to.x - half} ${to.y} ${to.x} ${to.y}`;
}

/** Return a path below the steps: from the bottom of a step, through the waypoints, to the bottom of an earlier step. */
function backwards(points: Point[]): string {
  const from = points[0];
  const to = points.at(-1);
  if (from === undefined || to === undefined) return "";
  const startY = from.y + HEIGHT / 2;
  const endY = to.y + HEIGHT / 2 + 5;
  const between = points.slice(1, -1);
  const first = between[0];
  const last = between.at(-1);
  if (first === undefined || last === undefined) {
    return `M ${from.x} ${startY} C ${from.x} ${startY + DEPTH * 1.4} ${to.x} ${endY + DEPTH * 1.4} ${to.x} ${endY}`;
  }
  const middle = between.map((point, index) => (index === 0 ? "" : bend(between[index - 1] ?? point, point))).join(" ");
  const start = `M ${from.x} ${startY} C ${from.x} ${startY + DEPTH} ${first.x + WIDTH / 2} ${first.y} ${first.x} ${first.y}`;
  return `${start} ${middle} C ${last.x - WIDTH / 2} ${last.y} ${to.x} ${endY + DEPTH} ${to.x} ${endY}`;
}

/** Return a path from a step to itself, below the step. */
function loop({ x, y }: Point): string {
  const bottom = y + HEIGHT / 2;
  return `M ${x + 28} ${bottom} C ${x + 40} ${bottom + DEPTH} ${x - 40} ${bottom + DEPTH} ${x - 28} ${bottom + 5}`;
}

/** Return the position of a condition: in the gap after the step, above the edge. */
function conditionPlace(from: Point, next: Point): Point {
  const left = from.x + WIDTH / 2;
  const right = next.x - WIDTH / 2;
  return { x: (left + right) / 2, y: (from.y + next.y) / 2 - 4 };
}
