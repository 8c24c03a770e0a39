// Commands for a run: pause, resume, cancel. Cancelling asks for confirmation in the same place.

import type { Connection } from "../shared/connection";
import { h, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import type { Model } from "../shared/model";
import { currentOf, keptText } from "./progress";

const LABELS = { pause: "Pause", resume: "Resume", cancel: "Cancel …" } as const;
type Command = keyof typeof LABELS;

/** Makes the buttons, and the question whether to cancel, which stands below them; `say` shows what came of it. */
export function actions(model: Model, connection: Pick<Connection, "control">, say: (text: string) => void): View & { question: HTMLElement } {
  const buttons = new Map((Object.keys(LABELS) as Command[]).map((name) => [name, button(LABELS[name], () => { press(name); }, { class: "db-button" })]));
  const questionText = h("span");
  const keepRunning = button("Go on", () => { setFolded(true); }, { class: "db-button" });
  const question = h(
    "div",
    { class: "db-sure", role: "group", "aria-label": "Cancel the run?", hidden: true, onkeydown: (event: KeyboardEvent) => { if (event.key === "Escape") setFolded(true); } },
    questionText, button("Cancel the run", () => { setFolded(true); send("cancel"); }, { class: "db-button danger" }), keepRunning,
  );

  function press(name: Command): void {
    if (name !== "cancel") send(name);
    else setFolded(!question.hidden);
  }

  function setFolded(isFolded: boolean): void {
    setText(questionText, `Cancel the run? ${keptText(currentOf(model.header))}`);
    question.hidden = isFolded;
    buttons.get("cancel")?.setAttribute("aria-expanded", String(!isFolded));
    (isFolded ? buttons.get("cancel") : keepRunning)?.focus();
  }

  function send(command: Command): void {
    const pressed = buttons.get(command);
    pressed?.setAttribute("aria-busy", "true");
    void connection.control(command).then((ack) => {
      pressed?.removeAttribute("aria-busy");
      say(ack.accepted ? "" : ack.text);
    });
  }

  function show(): void {
    const { header, connected, failures } = model;
    const hasFailureCard = failures.total > 0 && header?.ways.some(({ name }) => name !== "replay") === true; // its card offers the ways on, with their price
    for (const [name, element] of buttons) {
      const isOffered = header?.commands.includes(name) === true && !(name === "resume" && hasFailureCard);
      if (!isOffered && document.activeElement === element) element.closest<HTMLElement>("[tabindex]")?.focus(); // or it is nowhere
      element.hidden = !isOffered;
      element.disabled = connected !== "connected";
    }
    if (buttons.get("cancel")?.hidden === true) question.hidden = true;
  }

  const undo = model.on((change) => { if (change === "header" || change === "connection" || change === "failures") show(); });
  show();
  return { element: h("span", { class: "db-commands" }, ...buttons.values()), question, destroy: undo };
}
