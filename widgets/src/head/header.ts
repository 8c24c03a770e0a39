// Head of every view of a run: name and status, commands, progress, and consumption.

import type { Header } from "../protocol";
import type { Connection } from "../shared/connection";
import { copyButton } from "../shared/copy";
import { h, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import { plural } from "../shared/format";
import { isInNotebook, rerun } from "../shared/celllinks";
import { keysList } from "../shared/keys";
import type { Model } from "../shared/model";
import { KERNEL_SILENT, kernelStopped } from "../shared/words";
import { moment } from "../shared/times";
import { SIGNS } from "../timeline/kinds";
import { actions } from "./actions";
import { facts } from "./facts";
import { currentOf, keptText, progress } from "./progress";
import "./head.css";

const DURABILITY = {
  durable: ["durable", "Every event is on disk, and survives a power failure."],
  relaxed: ["relaxed", "Events survive a crash of this process. A power failure may lose the latest events."],
  memory: ["memory only", "Events are only in memory. They are lost when this process ends."],
} as const;
const BADGES: Record<string, string> = {
  "what-if": "Repeats another run with a change, to compare the results. It is not included in totals.",
  trial: "Runs one step of another run again. It is not included in totals.",
  fork: "Continues another run from one of its events.",
};
const TICK = 500; // milliseconds between two updates of the numbers
const MIN_TICK = 200; // milliseconds; nobody can read numbers that change faster

/** Make the head. `root` is the view whose keys are listed; `spread` is shown below the progress bars. */
export function header(root: HTMLElement, model: Model, connection: Pick<Connection, "control">, spread: View): View {
  const name = h("h2", { class: "db-name" });
  const status = h("span", { class: "db-status" });
  const toQuestions = (): void => { root.querySelector(".divebook-prompt .card")?.scrollIntoView({ block: "center" }); };
  const questionButton = button("", toQuestions, { class: "quiet small db-asks", hidden: true });
  const badge = h("span", { class: "db-trial", hidden: true });
  const when = h("span", { class: "db-when" });
  const durability = h("span", { class: "db-badge", tabindex: 0 });
  const dashboards = h("span", { class: "db-dashboards", hidden: true });
  const noticeText = h("span");
  const resume = button("Resume", () => { rerun(root); }, { class: "db-button" });
  resume.title = "Runs the cells above and this cell again. The run then continues without repeating its completed calls.";
  const notice = h("div", { class: "db-notice row", role: "status", hidden: true }, noticeText);
  const waitNotice = h("div", { class: "db-notice db-waits", hidden: true });
  const error = h("div", { class: "db-error", role: "alert", hidden: true });
  const keys = keysList(root);
  const copyTitle = "Copy the Python code that opens this run in any notebook";
  const copy = copyButton(() => pythonOf(model.header), { class: "quiet small", title: copyTitle, "aria-label": "Copy the Python code that opens this run" });
  const actionBar = actions(model, connection, showNotice);
  const progressBars = progress(model);
  const consumption = facts(model);

  let message = "";
  let hasFailed = false; // true if the run has failed while this view existed; the view's cell has then failed too
  let lastTick = 0;
  let linkKey = "";

  /** Show a message about a command, or a hint about the state of the connection or the run. */
  function showNotice(text: string): void {
    message = text;
    const hasResume = isStopped(model) && isInNotebook(root);
    if (hasResume) notice.append(resume);
    else resume.remove();
    const connectionText = { connecting: "connecting to the kernel …", connected: message, silent: message || (model.isOver ? "" : KERNEL_SILENT), detached: stoppedText(model, hasResume) }[model.connected];
    const shownText = connectionText || pausedText(model) || completedText(model, hasFailed);
    setText(noticeText, shownText);
    notice.hidden = shownText === "";
    showStatus();
  }

  /** Show the status. It is also known without a header, if the kernel stopped before the first message. */
  function showStatus(): void {
    const connectionStatus = connectionStatusOf(model);
    if (model.header === null) {
      setText(status, connectionStatus === "" ? "" : `${SIGNS["paused"] ?? ""} ${connectionStatus}`);
      status.dataset["status"] = "paused";
      return;
    }
    const displayStatus = connectionStatus !== "" ? "paused" : displayStatusOf(model.header);
    setText(status, `${SIGNS[displayStatus] ?? ""} ${connectionStatus || displayStatus}`);
    status.dataset["status"] = displayStatus;
    status.title = displayStatus === "asleep" ? "The run continues automatically. A bar in the timeline shows what it waits for." : "";
  }

  /** Show the header of the model. The numbers are updated at most every MIN_TICK milliseconds while the run is live. */
  function show(): void {
    const header = model.header;
    if (header === null) return;
    hasFailed ||= header.status === "failed";
    setText(name, header.workflow);
    name.title = header.execution_id;
    setText(badge, header.badge);
    badge.title = BADGES[header.badge] ?? "";
    badge.hidden = header.badge === "";
    setText(when, header.started_us === null ? "" : `started ${moment(header.started_us)}`);
    const [word, meaning] = DURABILITY[header.durability];
    setText(durability, word);
    durability.title = meaning;
    durability.setAttribute("aria-label", `${word}: ${meaning}`);
    durability.dataset["durability"] = header.durability;
    showLinks(header);
    setText(waitNotice, header.waits);
    waitNotice.hidden = header.waits === "";
    setText(error, header.error);
    error.dataset["status"] = displayStatusOf(header);
    error.hidden = header.error === "" || model.failures.total > 0; // the failure's card shows the error
    showNotice(message);
    showQuestions();
    if (!header.live || Date.now() - lastTick > MIN_TICK) tick();
  }

  /** Show links to the dashboards of clusters. They are replaced only if they change, so that a link keeps the focus. */
  function showLinks({ dashboards: addresses, live }: Header): void {
    const links = live ? addresses.filter(isWebAddress) : [];
    if (links.join(" ") === linkKey) return;
    linkKey = links.join(" ");
    dashboards.replaceChildren(...links.map((href) => h("a", { href, title: href, target: "_blank", rel: "noopener noreferrer" }, "Dask dashboard ↗")));
    dashboards.hidden = links.length === 0;
  }

  function showQuestions(): void {
    const open = [...model.questions.values()].filter((question) => question.status === "pending").length;
    questionButton.hidden = open === 0 || model.isOver;
    setText(questionButton, `? ${plural(open, "question")} for you`);
  }

  function tick(): void {
    lastTick = Date.now();
    progressBars.update();
    consumption.update();
  }

  const timer = setInterval(tick, TICK);
  const undo = model.on((change) => {
    if (change === "header" || change === "failures") show();
    if (change === "questions") showQuestions();
    if (change === "connection") showNotice("");
  });
  showNotice("");
  const end = h("div", { class: "db-actions", role: "group", "aria-label": "Run" }, actionBar.element, copy, keys.button);
  const line = h("div", { class: "db-top" }, name, badge, status, questionButton, when, durability, dashboards, end);
  const bars = [progressBars.element, spread.element, consumption.element];
  const element = h("div", { class: "db-header" }, line, actionBar.question, keys.element, ...bars, error, notice, waitNotice);
  const destroy = (): void => {
    clearInterval(timer);
    undo();
    actionBar.destroy();
    spread.destroy();
  };
  return { element, destroy };
}

/** Return whether an address is a web page (and not, for example, a script). */
function isWebAddress(address: string): boolean {
  return /^https?:\/\//i.test(address);
}

/** Return the Python line that opens a run. */
function pythonOf(header: Header | null): string {
  return `import divebook; run = divebook.show(${JSON.stringify(header?.execution_id ?? "")})`;
}

/** Return true if the kernel that drove the run is gone, and the run has not ended. */
function isStopped(model: Model): boolean {
  return model.connected === "detached" && model.header !== null && !model.isOver;
}

/** Return the status of a run that has not ended, if its kernel has stopped or does not answer; otherwise an empty text. */
function connectionStatusOf(model: Model): string {
  if (model.header !== null && model.isOver) return "";
  if (model.connected === "detached") return "kernel stopped";
  return model.connected === "silent" ? "kernel does not answer" : "";
}

/** Return what is kept of a run whose kernel is gone, and how to continue it, unless a button does that. */
function stoppedText(model: Model, hasButton: boolean): string {
  const { header } = model;
  if (header === null) return kernelStopped("continue.");
  if (model.isOver) return "The kernel stopped after the run had ended.";
  const kept = keptText(currentOf(header));
  return hasButton ? `The kernel stopped. ${kept}` : `${kernelStopped(`continue, or run %dive resume ${header.execution_id}.`)} ${kept}`;
}

function pausedText({ header }: Model): string {
  return header !== null && displayStatusOf(header) === "paused" ? "The run is paused. Run the cell again to continue the run." : "";
}

/** Return how to use the result of a run that was fixed after its cell had failed. */
function completedText({ header }: Model, hasFailed: boolean): string {
  if (!hasFailed || header?.status !== "completed") return "";
  return "The run has completed, but its cell had failed before. Run the cell again to get the result from the log.";
}

/** Return the status to display. In the log, a paused run is still "running", and a run that waits for a time is "waiting". */
function displayStatusOf({ status, doing, live, ended_us: ended }: Header): string {
  if (ended !== null) return status;
  if (doing === "asleep" && status === "waiting") return "asleep";
  return doing === "paused" && !live && status !== "enqueued" ? "paused" : status;
}
